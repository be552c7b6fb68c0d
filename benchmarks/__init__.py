"""Benchmarks of speed, memory and statistics, peers in the same run: ``python -m benchmarks``."""
