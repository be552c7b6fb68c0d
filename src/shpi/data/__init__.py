"""The room `shpi.data`."""
