"""Regression oracles: f(x, a) fitted to k-step advantages, with everything that stays the same done once.

    Ridge            closed form, the default; no extra package
    Mlp              a perceptron with one output per action                    (extra ``neural``)
    Gbdt             LightGBM on (x, a)                                         (extra ``gbdt``)
    VowpalWabbit     the paper's                                                (extra ``vw``)
    CoinBetting      the authors' release: no interactions, one pass per fit, with or without VW

`Ridge.exact` is the minimiser that coin betting approaches.
"""

from shpi.oracles.base import Oracle, PreparedOracle
from shpi.oracles.coin import CoinBetting
from shpi.oracles.gbdt import Gbdt, GbdtScorer
from shpi.oracles.mlp import Mlp
from shpi.oracles.ridge import PreparedRidge, Ridge
from shpi.oracles.vw import VowpalWabbit

__all__ = [
    "CoinBetting",
    "Gbdt",
    "GbdtScorer",
    "Mlp",
    "Oracle",
    "PreparedOracle",
    "PreparedRidge",
    "Ridge",
    "VowpalWabbit",
]
