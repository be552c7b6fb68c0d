"""Internals of `shpi.data.shards`."""
