"""Density ratios d_pi / d_mu of state distributions, and advantages that are penalised with them.

    LinearRatio      closed form, in milliseconds; the default
    DualDICE         as in the paper, with networks (extra ``neural``)

ratio = LinearRatio(gamma=0.99).prepare(logs, seed=0).fit(pi).warn()
penalised_advantages(advantages, ratio, strength)
"""

from shpi.shift.base import CoverageWarning, Limits, PreparedRatio, Ratio, RatioEstimator
from shpi.shift.dualdice import DualDICE
from shpi.shift.linear import LinearRatio, RatioSums
from shpi.shift.proximal import penalised_advantages, penalised_rewards

__all__ = [
    "CoverageWarning",
    "DualDICE",
    "Limits",
    "LinearRatio",
    "PreparedRatio",
    "Ratio",
    "RatioEstimator",
    "RatioSums",
    "penalised_advantages",
    "penalised_rewards",
]
