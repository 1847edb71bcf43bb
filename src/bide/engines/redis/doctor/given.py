"""Of a queue with a client of Sentinels: the Sentinels, which its connections go by, as a URL would name them."""

from typing import Any

import msgspec

from bide.engines.redis.client import Address, of_url, parameters, scheme_of, sentinel_address
from bide.engines.redis.redaction import Secret
from bide.engines.redis.topology import Place


def sentinels_of(address: Address) -> tuple[Address, Address] | None:
    """How the servers of the data and how the Sentinels are reached; None when there are no Sentinels."""
    if address.service:
        return address, sentinel_address(address)
    pool = getattr(address.client.given, "connection_pool", None)
    manager = getattr(pool, "sentinel_manager", None)
    if pool is None or manager is None:
        return None
    pools = [each.connection_pool for each in manager.sentinels]
    seeds = tuple(Place(each.connection_kwargs["host"], int(each.connection_kwargs["port"])) for each in pools)
    data = msgspec.structs.replace(
        address, client=_plain(address.client.scheme, pool.connection_kwargs), seeds=seeds, service=str(pool.service_name)
    )
    taken = pools[0].connection_kwargs
    password = taken.get("password")
    asked = msgspec.structs.replace(
        sentinel_address(data),
        client=_plain(scheme_of(pools[0].connection_class), taken),
        username=taken.get("username"),
        password=Secret(password) if password else None,
    )
    return data, asked


def _plain(scheme: str, taken: Any) -> Any:
    """Connections as the client makes them, but of redis-py's usual class, and sync."""
    known = parameters(of_url(scheme, {}).connection_class("sync"))
    return of_url(scheme, {name: value for name, value in taken.items() if name in known})
