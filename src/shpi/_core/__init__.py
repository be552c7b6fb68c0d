"""Internals that every room uses: lazy names, memory, progress, softmax, threads."""
