"""The metric of a log: what is counted, from when, for how long, and how users end."""

from shpi.data.question.count import Counted, count
from shpi.data.question.endings import Endings, leave_after, terminate_unknown_endings
from shpi.data.question.metric import Metric

__all__ = ["Counted", "Endings", "Metric", "count", "leave_after", "terminate_unknown_endings"]
