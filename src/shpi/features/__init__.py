"""The room `shpi.features`."""
