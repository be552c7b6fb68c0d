"""From a table to `LoggedData`: open, encode, order, fill, assemble."""
