"""Public conformance suites: what every policy (and later every oracle and simulator) must hold.

from shpi.testing import check_policy

def test_my_policy() -> None:
    check_policy(MyPolicy(...), contexts, candidates)
"""

from shpi.testing.policy import check_policy

__all__ = ["check_policy"]
