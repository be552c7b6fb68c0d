"""Learners, each in one readable file. What needs torch imports it when it is used."""

from shpi.learners.bandit import ContextualBandit
from shpi.learners.base import Learner, OnlineLearner
from shpi.learners.bcq import BatchConstrained, DiscreteBCQ
from shpi.learners.cb_mf import CBMF
from shpi.learners.cloning import BehaviourCloning
from shpi.learners.cql import DiscreteCQL
from shpi.learners.improved import ImprovedPolicy, Iteration
from shpi.learners.logging_policy import LoggedBehaviour
from shpi.learners.named import ConservativePolicyIteration, PolicyGradientAdvantage
from shpi.learners.nn_ips import NNIPS
from shpi.learners.offline import OfflineSHPI
from shpi.learners.sarsa import DeepSARSA
from shpi.learners.session_rl import SessionRL

__all__ = [
    "CBMF",
    "NNIPS",
    "BatchConstrained",
    "BehaviourCloning",
    "ConservativePolicyIteration",
    "ContextualBandit",
    "DeepSARSA",
    "DiscreteBCQ",
    "DiscreteCQL",
    "ImprovedPolicy",
    "Iteration",
    "Learner",
    "LoggedBehaviour",
    "OfflineSHPI",
    "OnlineLearner",
    "PolicyGradientAdvantage",
    "SessionRL",
]
