"""The tables and figures of the paper's appendix, one file each."""
