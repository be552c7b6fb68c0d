"""The room `shpi.policies`."""
