"""Passes over shards on a cluster.

Ray            tasks on the machines of a Ray cluster, with the bits of `shpi.passes.Serial`
"""

from shpi.cluster.tasks import Ray

__all__ = ["Ray"]
