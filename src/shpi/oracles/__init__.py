"""Regression oracles, which fit f(x, a) to k-step advantages; what all fits share is computed once.

    Ridge            closed form, the default; no extra package
    Mlp              a perceptron with one output per action                    (extra ``neural``)
    Gbdt             LightGBM on (x, a)                                         (extra ``gbdt``)
    VowpalWabbit     as in the paper                                            (extra ``vw``)
    CoinBetting      as in the authors' release: no interactions, one pass per fit, with or without VW

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
