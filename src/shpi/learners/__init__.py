"""Learners, each in one readable file. What needs torch imports it when it is used."""

from shpi.learners.base import Learner, OnlineLearner
from shpi.learners.cloning import BehaviourCloning
from shpi.learners.improved import ImprovedPolicy, Iteration
from shpi.learners.offline import OfflineSHPI
from shpi.learners.sarsa import DeepSARSA

__all__ = [
    "BehaviourCloning",
    "DeepSARSA",
    "ImprovedPolicy",
    "Iteration",
    "Learner",
    "OfflineSHPI",
    "OnlineLearner",
]
