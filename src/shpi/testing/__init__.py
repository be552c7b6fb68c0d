"""Public conformance suites: what every policy and every oracle (and later every simulator) must hold.

from shpi.testing import check_policy

def test_my_policy() -> None:
    check_policy(MyPolicy(...), contexts, candidates)

def test_my_oracle() -> None:
    check_oracle(MyOracle(...))
"""

from shpi.testing.oracle import check_oracle
from shpi.testing.policy import check_policy

__all__ = ["check_oracle", "check_policy"]
