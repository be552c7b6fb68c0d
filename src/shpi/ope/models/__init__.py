"""Outcome models of the estimators: linear backups, their predictions and features."""
