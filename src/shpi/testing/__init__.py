"""Public conformance suites: requirements on every policy, oracle, value and learner.

from shpi.testing import check_policy

def test_my_policy() -> None:
    check_policy(MyPolicy(...), contexts, candidates)

def test_my_oracle() -> None:
    check_oracle(MyOracle(...))

def test_my_value() -> None:
    check_value(MyValue(...))

def test_my_learner() -> None:
    check_learner(MyLearner(...))            # or check_online_learner, for fit(simulator)
"""

from shpi.testing.learner import check_learner, check_online_learner
from shpi.testing.oracle import check_oracle
from shpi.testing.policy import check_policy
from shpi.testing.value import check_value

__all__ = ["check_learner", "check_online_learner", "check_oracle", "check_policy", "check_value"]
