"""The tables and figures of the paper's main text, one file each."""
