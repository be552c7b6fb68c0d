"""Internals that every package uses: lazy names, memory, progress, softmax, threads."""
