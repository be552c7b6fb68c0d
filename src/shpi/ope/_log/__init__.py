"""A log prepared for evaluation: facts, parts of whole users, sessions as trajectories."""
