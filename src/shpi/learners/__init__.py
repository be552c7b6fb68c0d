"""Learners, each in one readable file. Those that need torch import it on first use.

offline       OfflineSHPI: short-horizon policy improvement from a log; `_shpi` has its parts
online        learners that act in a simulator: OnlineSHPI, OnlineBandit, DeepSARSA
bandit, session_rl, named, cloning, logging_policy, best
              contextual bandit, session RL, A^mu and A^pi, clones of mu, mu itself, the best of several
neural        baselines that train networks: DiscreteBCQ, DiscreteCQL, NNIPS, CBMF
constrained   SPIBB, MBS, and SHPI under their constraints
registry      learners by name
"""

from shpi.learners.bandit import ContextualBandit
from shpi.learners.base import Learner, OnlineLearner
from shpi.learners.best import Best
from shpi.learners.cloning import BehaviourCloning
from shpi.learners.constrained.mbs import MBS
from shpi.learners.constrained.shpi import ConstrainedSHPI
from shpi.learners.constrained.spibb import SPIBB
from shpi.learners.improved import ImprovedPolicy, Iteration, Trial
from shpi.learners.logging_policy import LoggedBehaviour
from shpi.learners.named import ConservativePolicyIteration, PolicyGradientAdvantage
from shpi.learners.neural.bcq import BatchConstrained, DiscreteBCQ
from shpi.learners.neural.cb_mf import CBMF
from shpi.learners.neural.cql import DiscreteCQL
from shpi.learners.neural.nn_ips import NNIPS
from shpi.learners.offline import OfflineSHPI
from shpi.learners.online.bandit import OnlineBandit
from shpi.learners.online.deep_sarsa import DeepSARSA
from shpi.learners.online.shpi import OnlineSHPI
from shpi.learners.session_rl import SessionRL

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
