"""Internals of `OfflineSHPI`: lift estimation (judge), candidate search from mu (climb), bounds (lift)."""
