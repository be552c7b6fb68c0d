"""Speed and memory, measured against named peers in the same run: ``python -m benchmarks``."""
