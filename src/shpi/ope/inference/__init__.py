"""From users to intervals: weights, weighted means per step, censoring, bounds."""
