"""What stands behind `shpi.data.shards`."""
