"""Checks of one assumption each: users, propensities, time, looks. Pure functions and one diagnostic each."""
