"""What an operator should know of a server, or of those of a Cluster or a Sentinel group: asked, never changed."""

import copy

from bide.engines.base import Finding
from bide.engines.redis.doctor import cluster, sentinels, servers
from bide.engines.redis.doctor.sentinels import sentinels_of
from bide.engines.redis.namespace import Namespace


def examine(namespace: Namespace) -> list[Finding]:
    if namespace.address.clustered:
        return cluster.examine(namespace)
    watched = sentinels_of(namespace.address)
    if watched is None:
        return servers.examine(namespace)
    found = copy.copy(namespace)
    found.address, asked = watched
    return sentinels.examine(found, asked)
