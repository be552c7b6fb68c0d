"""Every kind of log that the benchmarks of the learner use, behind one small interface.

from benchmarks.worlds import by_name, names
world = by_name("storefront-uniform")
log = world.make_log(seed=900)
policy = OfflineSHPI(gamma=world.gamma, seed=900).fit(log)
world.true_value(policy, seed=900), world.mu_value(seed=900), world.optimum(seed=900)
world.headline(policy, seed=900)                                  # the figure of the results page
"""

from benchmarks.worlds.base import Lift, Truth, World
from benchmarks.worlds.catalogue import LOGS, NULLS, by_name, names

__all__ = ["LOGS", "NULLS", "Lift", "Truth", "World", "by_name", "names"]
