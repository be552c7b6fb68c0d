"""A log prepared for evaluation: facts, chunks of whole users, sessions as trajectories."""
