"""Learners, each in one readable file. What needs torch imports it when it is used."""

from shpi.learners.bandit import ContextualBandit
from shpi.learners.base import Learner, OnlineLearner
from shpi.learners.bcq import BatchConstrained, DiscreteBCQ
from shpi.learners.best import Best
from shpi.learners.cb_mf import CBMF
from shpi.learners.cloning import BehaviourCloning
from shpi.learners.constrained_shpi import ConstrainedSHPI
from shpi.learners.cql import DiscreteCQL
from shpi.learners.improved import ImprovedPolicy, Iteration, Trial
from shpi.learners.logging_policy import LoggedBehaviour
from shpi.learners.mbs import MBS
from shpi.learners.named import ConservativePolicyIteration, PolicyGradientAdvantage
from shpi.learners.nn_ips import NNIPS
from shpi.learners.offline import OfflineSHPI
from shpi.learners.online import OnlineSHPI
from shpi.learners.online_bandit import OnlineBandit
from shpi.learners.sarsa import DeepSARSA
from shpi.learners.session_rl import SessionRL
from shpi.learners.spibb import SPIBB

__all__ = [
    "CBMF",
    "MBS",
    "NNIPS",
    "SPIBB",
    "BatchConstrained",
    "BehaviourCloning",
    "Best",
    "ConservativePolicyIteration",
    "ConstrainedSHPI",
    "ContextualBandit",
    "DeepSARSA",
    "DiscreteBCQ",
    "DiscreteCQL",
    "ImprovedPolicy",
    "Iteration",
    "Learner",
    "LoggedBehaviour",
    "OfflineSHPI",
    "OnlineBandit",
    "OnlineLearner",
    "OnlineSHPI",
    "PolicyGradientAdvantage",
    "SessionRL",
    "Trial",
]
