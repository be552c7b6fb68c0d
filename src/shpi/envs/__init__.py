"""The room `shpi.envs`."""
