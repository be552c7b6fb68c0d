"""Inside `LoggedData`: checks, slices, windows, futures, and the ledger of rows."""
