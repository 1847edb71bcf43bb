"""A master and its replicas: whether they keep up, and what is lost when one is promoted."""

import re
from collections.abc import Iterator, Sequence
from typing import Literal, TypeAlias

from bide.core.formats import size
from bide.engines.base import Finding
from bide.engines.redis.confirm import check_disk, confirmation
from bide.engines.redis.doctor.visits import Refusal, ServerTold
from bide.engines.redis.topology import ServerPlace
from bide.errors import ConfigError

Group: TypeAlias = Literal["", "Sentinels", "Cluster"]  # who promotes a replica

BEHIND = 10 * 2**20  # bytes
SILENT = 10  # seconds, as in min-replicas-max-lag

_ALONE = {
    "": "a master that lost the others goes on taking messages that are lost in the end: set it to 1",
    "Sentinels": "a master that is cut off goes on taking messages that are lost when it is back: set it to 1 on all",
    "Cluster": "a master that is cut off takes messages for cluster-node-timeout that are lost when it is back: set it to 1",
}
_NONE = {
    "Sentinels": "nothing can be promoted when the master fails: give it replicas",
    "Cluster": "its shards stand still while it is away: give it a replica",
}


def check(master: ServerTold, replicas: Sequence[ServerTold], group: Group, confirm: str) -> Iterator[Finding]:
    if master.lost is not None:
        return
    if master.info.get("role") == "slave":
        yield Finding("replicas", "this one is a replica", "bad", "it takes no messages: name its master")
        return
    yield _count(master, replicas, group, confirm)
    if links(master):
        yield _lag(master)
    if replicas:
        yield from _persistence(master, replicas)
        away = [each.where for each in replicas if each.lost is not None]
        if away and group != "Cluster":  # where all nodes are checked for that
            advice = "programs must reach each server that may be promoted" if group else ""
            yield Finding("copies", f"{', '.join(away)} can't be reached from here", "warn" if group else "ok", advice)
    yield from _confirm(master, replicas, confirm)


def links(master: ServerTold) -> list[dict[str, str]]:
    """What a master tells of the replicas that are connected to it."""
    found = [told for name, told in master.info.items() if re.fullmatch(r"slave\d+", name)]
    return [dict(part.split("=", 1) for part in told.split(",") if "=" in part) for told in found]


def places(master: ServerTold) -> list[ServerPlace]:
    return [ServerPlace(each["ip"], int(each["port"])) for each in links(master)]


def versions(servers: Sequence[ServerTold]) -> Iterator[Finding]:
    """Told only when they differ."""
    known: dict[str, list[str]] = {}
    for each in servers:
        if each.info:
            known.setdefault(each.info.get("valkey_version") or each.info.get("redis_version", "unknown"), []).append(
                each.where
            )
    if len(known) > 1:
        value = "; ".join(f"{version} on {', '.join(where)}" for version, where in sorted(known.items()))
        yield Finding("versions", value, "warn", "an older one may not take what a newer one copies to it: update all")


def _count(master: ServerTold, replicas: Sequence[ServerTold], group: Group, confirm: str) -> Finding:
    count, servers = (
        master.number("connected_slaves"),
        [each for each in (master, *(replicas if group else ())) if each.lost is None],
    )
    if not count:
        advice = _NONE.get(group, "")
        return Finding("replicas", "0", "warn" if advice else "ok", advice)
    lax = [each.where for each in servers if "min_slaves_good_slaves" not in each.info]  # told only where it is set
    if not lax or confirm.startswith("replicas:"):  # without its replicas it confirms nothing
        return Finding("replicas", f"{count}")
    where = "" if len(lax) == len(servers) else f" on {', '.join(lax)}"
    return Finding("replicas", f"{count}, min-replicas-to-write 0{where}", "warn", _ALONE[group])


def _lag(master: ServerTold) -> Finding:
    end, late, most = master.number("master_repl_offset"), list[str](), 0
    for each in links(master):
        name = str(ServerPlace(each.get("ip", ""), int(each.get("port", 0))))
        behind, silent = max(0, end - int(each.get("offset", 0))), int(each.get("lag", 0))
        if each.get("state") != "online":
            late.append(f"{name} is being given a whole copy")
            continue
        most = max(most, behind)
        if silent > SILENT:
            late.append(f"{name} has said nothing for {silent} s")
        elif behind > BEHIND:
            late.append(f"{name} is {size(behind)} behind")
    if late:
        advice = "what it has not got is lost if it is promoted: is it, or the network, too slow?"
        return Finding("lag", "; ".join(late), "warn", advice)
    return Finding("lag", f"at most {size(most)}")


def _persistence(master: ServerTold, replicas: Sequence[ServerTold]) -> Iterator[Finding]:
    """A single finding, but none when nothing is known."""
    known = [each for each in replicas if saves(each) is not None]
    without = [each.where for each in known if not saves(each)]
    if saves(master) is False:
        advice = (
            "if it restarts before it is missed, it is empty and its replicas drop all they have: set appendonly yes on all"
        )
        yield Finding("copies", "the master saves nothing", "bad", advice)
    elif saves(master) and without:
        advice = "promoted, it loses everything at a restart: set appendonly yes there, too"
        yield Finding("copies", f"nothing is saved on {', '.join(without)}, although the master saves", "warn", advice)
    elif known:
        yield Finding("copies", "saved on the disk, as on the master")


def saves(told: ServerTold) -> bool | None:
    """Whether it keeps anything over a restart; None when it does not say."""
    config = told.answers.get("config")
    if told.lost is not None or not told.info:
        return None
    if told.info.get("aof_enabled") == "1":
        return True
    return None if config is None or isinstance(config, Refusal) else bool(config.get("save"))


def _confirm(master: ServerTold, replicas: Sequence[ServerTold], confirm: str) -> Iterator[Finding]:
    asked = confirmation(confirm, 1.0)
    if asked is None:
        return
    value = f"confirm={confirm}"
    if asked.on_disk:
        unfit = [why for each in (master, *replicas) if (why := _unfit_for_disk(each))]
        yield Finding("confirm", value, "bad" if unfit else "ok", " ".join(unfit))
        return
    count = sum(each.get("state") == "online" for each in links(master))
    value = f"{value}, and {count} {'is' if count == 1 else 'are'} there"
    if count < asked.needed:
        advice = "each change raises ConfirmTimeout: add replicas, or ask for fewer"
        yield Finding("confirm", value, "bad", advice)
    elif count > asked.needed:
        advice = f"one that did not confirm may be promoted, and what it lacks is lost: ask for replicas:{count}"
        yield Finding("confirm", value, "warn", advice)
    else:
        yield Finding("confirm", value)


def _unfit_for_disk(told: ServerTold) -> str:
    """Why it can't confirm that a change is on its disk; nothing if it can, or does not say."""
    config = told.answers.get("config")
    if told.lost is not None or not told.info:
        return ""
    try:
        check_disk(told.where, told.info, None if not isinstance(config, dict) else config.get("appendfsync"))
    except ConfigError as error:
        return str(error)
    return ""
