"""The termination bonus."""
