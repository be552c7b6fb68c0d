"""A Ray cluster of two machines, as processes of this one."""

from __future__ import annotations

import importlib.util
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

MEMORY = 100 * 2**20  # bytes of each machine's store of objects
TRIES = 3  # Ray gives a machine 30 seconds to start, which a busy processor may not keep
# A dead machine is noticed within two seconds, not fifteen. Workers are no nicer than what `make test` runs
# beside them: with a niceness of 15 a test of two seconds took up to two minutes.
QUICK = {
    "health_check_initial_delay_ms": 1000, "health_check_period_ms": 500,
    "health_check_timeout_ms": 5000, "health_check_failure_threshold": 3, "worker_niceness": 0,
}  # fmt: skip


class TwoMachines:
    """A head that takes no tasks, and machines of one processor that can be killed."""

    def __init__(self) -> None:
        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
        import ray
        from ray.cluster_utils import Cluster

        head: dict[str, Any] = {"num_cpus": 0, "include_dashboard": False, "object_store_memory": MEMORY}
        head["_system_config"] = QUICK
        self.cluster = Cluster(initialize_head=True, head_node_args=head)
        self.machines = [self._add() for _ in range(2)]
        self.cluster.wait_for_nodes()
        ray.init(address=self.cluster.address, log_to_driver=False, logging_level="ERROR")

    def _add(self) -> Any:
        for _ in range(TRIES - 1):
            try:
                return self.cluster.add_node(num_cpus=1, object_store_memory=MEMORY)
            except Exception as error:  # Ray has no type of its own for it
                if "timed out during startup" not in str(error):
                    raise
        return self.cluster.add_node(num_cpus=1, object_store_memory=MEMORY)

    def kill(self) -> None:
        """End the first machine without notice, from any thread: its manager gets SIGKILL."""
        (manager,) = self.machines[0].all_processes["raylet"]
        os.kill(manager.process.pid, signal.SIGKILL)

    def replace(self) -> None:
        """Another machine in the place of the one that was killed."""
        self.cluster.remove_node(self.machines.pop(0), allow_graceful=False)
        self.machines.append(self._add())

    def end(self) -> None:
        import ray

        ray.shutdown()
        self.cluster.shutdown()


@pytest.fixture(scope="session")
def machines() -> Iterator[TwoMachines]:
    if importlib.util.find_spec("ray") is None:
        pytest.skip("needs ray")
    both = TwoMachines()
    yield both
    both.end()
