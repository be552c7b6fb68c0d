"""Estimators of a policy's value, one family per file."""
