"""To and from the data structures of other libraries; see docs/data-adapters.md."""

from shpi.data.adapters.bandit_feedback import from_bandit_feedback, to_bandit_feedback
from shpi.data.adapters.d3rlpy import to_d3rlpy
from shpi.data.adapters.dsjson import from_vw_dsjson
from shpi.data.adapters.episodes import from_episodes, to_episodes
from shpi.data.adapters.minari import from_minari, to_minari

__all__ = [
    "from_bandit_feedback",
    "from_episodes",
    "from_minari",
    "from_vw_dsjson",
    "to_bandit_feedback",
    "to_d3rlpy",
    "to_episodes",
    "to_minari",
]
