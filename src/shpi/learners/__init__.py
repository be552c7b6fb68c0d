"""The room `shpi.learners`."""
