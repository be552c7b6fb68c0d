"""Policies that stay near the logging policy mu, and clones of mu itself."""
