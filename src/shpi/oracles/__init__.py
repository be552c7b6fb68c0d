"""Regression oracles: f(x, a) fitted to k-step advantages, with everything that stays the same done once.

    Ridge            closed form, the default; no extra package
    Mlp              a perceptron with one output per action                    (extra ``neural``)
    Gbdt             LightGBM on (x, a)                                         (extra ``gbdt``)
    VowpalWabbit     the paper's                                                (extra ``vw``)

There is no coin betting without VW: its updates go row by row, and a loop over rows in Python is too slow.
`Ridge.exact` is the minimiser that coin betting approaches.
"""

from shpi.oracles.base import Oracle, PreparedOracle
from shpi.oracles.gbdt import Gbdt, GbdtScorer
from shpi.oracles.mlp import Mlp
from shpi.oracles.ridge import PreparedRidge, Ridge
from shpi.oracles.vw import VowpalWabbit

__all__ = [
    "Gbdt",
    "GbdtScorer",
    "Mlp",
    "Oracle",
    "PreparedOracle",
    "PreparedRidge",
    "Ridge",
    "VowpalWabbit",
]
