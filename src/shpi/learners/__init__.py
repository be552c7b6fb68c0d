"""Learners, each in one readable file. What needs torch imports it when it is used."""

from shpi.learners.sarsa import DeepSARSA

__all__ = ["DeepSARSA"]
