"""Passes over shards on a cluster.

Ray            tasks on the machines of a Ray cluster, with results bit-equal to `shpi.passes.Serial`
"""

from shpi.cluster.tasks import Ray

__all__ = ["Ray"]
