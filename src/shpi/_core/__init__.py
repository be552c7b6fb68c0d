"""What every room uses and no user sees: lazy names, memory, progress, softmax, threads."""
