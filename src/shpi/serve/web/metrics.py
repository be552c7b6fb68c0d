"""Counters for Prometheus. No user, item or event is ever a label."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence

BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)  # upper bounds, in seconds
_HELP = {
    "shpi_requests_total": ("counter", "Requests by route and status."),
    "shpi_decisions_total": ("counter", "Decisions by arm and policy."),
    "shpi_rewards_total": ("counter", "Rewards that were stored, by whether their decision is known."),
    "shpi_duplicates_total": ("counter", "Requests that were answered from the store."),
    "shpi_request_seconds": ("histogram", "Time from the request to the answer, of rank."),
    "shpi_store_failing": ("gauge", "1 while nothing can be made durable."),
    "shpi_orphan_rewards": ("gauge", "Rewards whose decision is unknown."),
    "shpi_clock_jumps_total": ("counter", "Jumps of the machine's clock."),
    "shpi_canary_share": ("gauge", "Share of users who get the policy on trial."),
    "shpi_alarms": ("gauge", "Alarms that are up, by name."),
    "shpi_canary_difference": ("gauge", "Canary minus champion per user: estimate and anytime bounds."),
    "shpi_hold_back_difference": ("gauge", "Champion minus hold-back per user: estimate and anytime bounds."),
}


class Metrics:
    """Counters and the latency histogram of a server."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, tuple[tuple[str, str], ...]]] = Counter()
        self.requests: Counter[tuple[str, int]] = Counter()  # by route and status
        self.decisions: Counter[tuple[str, str]] = Counter()  # by arm and policy
        self.rewards: Counter[bool] = Counter()  # by whether the decision is known
        self._buckets = [0] * (len(BUCKETS) + 1)
        self._seconds = 0.0

    def count(self, name: str, **labels: str) -> None:
        """Increase a counter by one."""
        self.counts[name, tuple(labels.items())] += 1

    def took(self, seconds: float) -> None:
        """Record the duration of a rank request."""
        self.took_each([seconds])

    def took_each(self, seconds: Sequence[float]) -> None:
        """Record the durations of several rank requests."""
        for duration in seconds:
            self._buckets[bisect_left(BUCKETS, duration)] += 1
        self._seconds += sum(seconds)

    def text(self, gauges: Iterable[tuple[str, dict[str, str], float]]) -> str:
        """All metrics in Prometheus's text format."""
        rows: dict[str, list[str]] = {name: [] for name in _HELP}
        for (route, status), value in sorted(self.requests.items()):
            labels = _labels({"route": route, "status": str(status)})
            rows["shpi_requests_total"].append(f"shpi_requests_total{labels} {value}")
        for (arm, policy), value in sorted(self.decisions.items()):
            labels = _labels({"arm": arm, "policy": policy})
            rows["shpi_decisions_total"].append(f"shpi_decisions_total{labels} {value}")
        for known, value in sorted(self.rewards.items()):
            rows["shpi_rewards_total"].append(
                f"shpi_rewards_total{_labels({'known': str(known).lower()})} {value}"
            )
        for (name, pairs), value in sorted(self.counts.items()):
            rows[name].append(f"{name}{_labels(dict(pairs))} {value}")
        for name, named, number in gauges:
            rows[name].append(f"{name}{_labels(named)} {number:.10g}")
        rows["shpi_request_seconds"] = self._histogram()
        lines = []
        for name, samples in rows.items():
            kind, about = _HELP[name]
            if samples:
                lines += [f"# HELP {name} {about}", f"# TYPE {name} {kind}", *samples]
        return "\n".join(lines) + "\n"

    def _histogram(self) -> list[str]:
        total, rows = 0, []
        for bound, count in zip([*map(str, BUCKETS), "+Inf"], self._buckets, strict=True):
            total += count
            rows.append(f'shpi_request_seconds_bucket{{le="{bound}"}} {total}')
        rows.append(f"shpi_request_seconds_sum {self._seconds:.6f}")
        rows.append(f"shpi_request_seconds_count {total}")
        return rows


def _labels(labels: dict[str, str]) -> str:
    if not labels:
        return ""
    safe = {k: v.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ") for k, v in labels.items()}
    return "{" + ",".join(f'{name}="{value}"' for name, value in safe.items()) + "}"
