"""Policies: maps from contexts to distributions over actions, which act with a propensity and can be saved.

    plain       UniformPolicy, ConstantPolicy, TabularPolicy, Mixture
    heads       Greedy, EpsilonGreedy, Softmax, BehaviourRegularised        over a scorer f(x, a)
    near_mu     policies that stay near the logging policy mu:
                BoundedRatio    greedy within pi <= c mu
                Tilted          mu^power exp(size f), from mu to the greedy policy on mu's support
                AmongLikely     greedy among the actions that mu is likely to take
                SupportLimited  with PseudoCounts or PolicyDensity as its support
    scorers     LinearScorer, MlpScorer, FunctionScorer
    shared      SharedScorer: the same ranking of actions in every context
    items       act on rows and return item ids: with_items
    training_users   the users that a policy was learned from, as hashes
    new_items   add_items: items that the log has never shown, by their features
    files       save_policy, load_policy, read_policy_file

All are immutable, and all obey a mask of allowed actions.
"""

from shpi.policies.base import PolicyMethods, act
from shpi.policies.files import PolicyFile, load_policy, read_policy_file, save_policy
from shpi.policies.heads import BehaviourRegularised, EpsilonGreedy, Greedy, Softmax
from shpi.policies.items import Items, with_items
from shpi.policies.near_mu.bounded import BoundedRatio
from shpi.policies.near_mu.likely import AmongLikely
from shpi.policies.near_mu.support import PolicyDensity, PseudoCounts, SupportLimited
from shpi.policies.near_mu.tilted import Tilted
from shpi.policies.plain import ConstantPolicy, Mixture, TabularPolicy, UniformPolicy
from shpi.policies.sampling import mask_probs, sample_actions
from shpi.policies.scorers import FunctionScorer, LinearScorer, MlpScorer, Scorer
from shpi.policies.shared import SharedScorer
from shpi.policies.training_users import TrainingUsers, training_users
from shpi.protocols import Policy

__all__ = [
    "AmongLikely",
    "BehaviourRegularised",
    "BoundedRatio",
    "ConstantPolicy",
    "EpsilonGreedy",
    "FunctionScorer",
    "Greedy",
    "Items",
    "LinearScorer",
    "Mixture",
    "MlpScorer",
    "Policy",
    "PolicyDensity",
    "PolicyFile",
    "PolicyMethods",
    "PseudoCounts",
    "Scorer",
    "SharedScorer",
    "Softmax",
    "SupportLimited",
    "TabularPolicy",
    "Tilted",
    "TrainingUsers",
    "UniformPolicy",
    "act",
    "load_policy",
    "mask_probs",
    "read_policy_file",
    "sample_actions",
    "save_policy",
    "training_users",
    "with_items",
]
