"""The sections of the report, one file each: an `Evaluation` in, a `Section` or None out."""
