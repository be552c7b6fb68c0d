"""Checks of the assumptions about users, propensities, time and repeated looks: one per module."""
