"""What the errors of a server and of its driver mean to a user, and which of them a command may be repeated after."""

import errno
import re
import socket
import time
from collections.abc import Iterable
from typing import Any

import redis.exceptions as theirs

from bide.core.formats import plural
from bide.engines.redis.client import redacted
from bide.engines.redis.protocol.encoding import LAYOUT, SPREAD
from bide.engines.redis.topology import read as read_spread
from bide.errors import BadTime, BideError, ConfigError, EngineError, QueueFull, SchemaMismatch, Unavailable

_NO_SCRIPTS = re.compile(r"unknown command ['`](?:EVALSHA|EVAL|SELECT)\b", re.IGNORECASE)
_NO_CLUSTER = re.compile(r"cluster support disabled|unknown command ['`]CLUSTER\b", re.IGNORECASE)
_NO_SENTINEL = re.compile(r"unknown command ['`]SENTINEL\b", re.IGNORECASE)
_NO_RIGHT = re.compile(r"no permissions to run the '?sentinel\b", re.IGNORECASE)
_NO_SERVICE = "No such master with that name"
NOBODY_HAS_IT = ("slot not served", "no node has slot")
BRIEF = 0.2  # seconds that a command is waited for and repeated when other servers are worth more
RENEWAL = 1.0  # the same for renewals of leases, unless a third of the lease is less
PARTS = 3
MIGRATION = 35.0  # seconds to wait while a shard moves to another node of a Cluster
REMEMBERED = 600_000  # ms that the server remembers an operation, at least


def to_cluster(shown: str) -> str:
    base, place = _parts(shown)
    return f"write {base}+cluster://{place}, or give a RedisCluster as client="


def to_sentinels(shown: str, service: str = "SERVICE") -> str:
    base, place = _parts(shown)
    return f"write {base}+sentinel://{place}/{service}"


def to_server(shown: str) -> str:
    base, place = _parts(shown)
    return f"write {base}://{place.partition(',')[0]}/0"


def of_cluster(shown: str) -> ConfigError:
    """For a URL of one server, where a node of a Cluster answers."""
    return ConfigError(f"{shown} names a node of a Redis Cluster, which has a part of the keys only: {to_cluster(shown)}.")


def from_server(shown: str, text: str) -> ConfigError | None:
    """What the error of a server means that is not what its URL says; None when it means something else."""
    if "SELECT is not allowed in cluster mode" in text:
        return of_cluster(shown)
    if "DB index is out of range" in text:
        return ConfigError(
            f"{shown} names a database that the server does not have: name a lower one, such as 0. If this names a node of a "
            f"Redis Cluster, {to_cluster(shown)}."
        )
    if _NO_SCRIPTS.search(text):
        return ConfigError(
            f"{shown} runs no scripts, so it can't hold messages. If it is a Sentinel, {to_sentinels(shown)} "
            "with the name of the service, which `bide doctor` tells."
        )
    return None


def from_node(shown: str, text: str) -> ConfigError | None:
    """What the error of a server means that was asked about its Cluster; None when it may know in a while."""
    if not _NO_CLUSTER.search(text):
        return None
    if "disabled" in text:
        return ConfigError(f"{shown} names a server that is no node of a Cluster: {to_server(shown)}.")
    return ConfigError(
        f"{shown} names a server that knows nothing of Clusters: {to_server(shown)}, or, if it is a Sentinel, "
        f"{to_sentinels(shown)}."
    )


def from_sentinel(shown: str, service: str, text: str) -> ConfigError | None:
    """What the error of a server means that was asked for a service; None when it may know in a while."""
    if _NO_SENTINEL.search(text):
        return ConfigError(
            f"{shown} names a server that is no Sentinel: name the Sentinels, which usually have port 26379, or "
            f"{to_server(shown)} for the server itself."
        )
    if _NO_RIGHT.search(text):
        return ConfigError(
            f"The user at the Sentinels of {shown} may not ask for the master: allow it there, with ACL SETUSER … "
            "+sentinel|master."
        )
    if _NO_SERVICE in text:
        return ConfigError(
            f"The Sentinels of {shown} know no service {service}: correct its name. `bide doctor` tells the names they know."
        )
    return None


def _parts(shown: str) -> tuple[str, str]:
    """redis or rediss, and where the servers are; a socket's URL does not say that."""
    scheme, _, rest = shown.partition("://")
    base = scheme.partition("+")[0]
    return ("redis", "host:6379") if base == "unix" else (base, rest.partition("/")[0])


LOST = (theirs.ConnectionError, theirs.TimeoutError, theirs.InvalidResponse, OSError, EOFError)
"""No answer came: the connection is broken, and the command may or may not have arrived."""

_REFUSED = (theirs.AuthenticationError, theirs.AuthenticationWrongNumberOfArgsError, theirs.AuthorizationError)
_WAITING = (  # newer drivers strip the codes of these from their texts
    theirs.AskError,
    theirs.BusyLoadingError,
    theirs.ClusterDownError,
    theirs.MasterDownError,
    theirs.MovedError,
    theirs.ReadOnlyError,
    theirs.TryAgainError,
)
_PASSING = re.compile(r"^(BUSY|CLUSTERDOWN|LOADING|MASTERDOWN|NOREPLICAS|READONLY|TRYAGAIN) |max number of clients")
_CODE = re.compile(r"\b(TOOFAR|TOOOLD (\d+) (\d+)|BADLAYOUT (\S+)|BADSHARDS (\S+)|NORIGHT (\w+)|OVERTAKEN|UNPINNED)")


_LACKING = re.compile(r"unknown (?:sub)?command", re.IGNORECASE)
_CUT = re.compile("reset by peer|closed by server|closed the connection", re.IGNORECASE)
WHERE = re.compile(r" script: [0-9a-f]{40}, on @\S+$")  # which tells a user nothing


SOON, LATER = 0.02, 1.0  # seconds between two tries, growing


SENTINEL_LOGIN = (
    "Sentinels have users of their own: write sentinel_password=… in the URL, and sentinel_username=… unless it is the default "
    "user"
)


class SentinelRefused(theirs.AuthenticationError):
    """A Sentinel refuses the user or the password that the URL has for Sentinels."""


class NodeRefused(theirs.AuthenticationError):
    """A node of a Cluster that was asked where the shards are refuses the user or the password."""

    def __init__(self, text: str, place: str) -> None:
        super().__init__(text)
        self.place: str = place


class TooOld(Exception):
    """The operation came too late, and did nothing. `sure`: no earlier try of it did anything, either."""

    def __init__(self, now: int, silent: int) -> None:
        super().__init__(now)
        self.now: int = now
        self.sure: bool = silent < REMEMBERED


class Unpinned(Exception):
    """Nothing was done: shard 0 does not have the number of shards yet."""


class OtherSpread(Exception):
    """Nothing was done: the shard has it that messages are spread like this."""

    def __init__(self, found: str) -> None:
        super().__init__(found)
        self.found: str = found


class Unanswered(Exception):
    """It may or may not have happened: the operation `number` of `lane`."""

    def __init__(self, sentence: str, lane: str, number: int) -> None:
        super().__init__(sentence)
        self.lane: str = lane
        self.number: int = number


class Unconfirmed(Exception):
    """It has happened, and nobody can say whether it will last: the operation `number` of `lane`."""

    def __init__(self, sentence: str, lane: str = "", number: int = 0, answer: Any = None) -> None:
        super().__init__(sentence)
        self.sentence: str = sentence
        self.lane: str = lane
        self.number: int = number
        self.answer: Any = answer  # of the server


def refused(error: BaseException) -> bool:
    """Whether the server refuses the user or the password."""
    return isinstance(error, _REFUSED)


def passing(error: BaseException) -> bool:
    """Whether nothing was done, and trying again may help."""
    return isinstance(error, _WAITING) or _PASSING.search(str(error)) is not None


def lacking(error: BaseException) -> bool:
    """Whether the server does not have the command, as many that are hosted."""
    return _LACKING.search(str(error)) is not None


def absent(error: BaseException) -> bool:
    """Whether nothing is there to connect to: nobody listens, or there is no such host or socket."""
    cause = error.__context__
    if isinstance(cause, (ConnectionRefusedError, FileNotFoundError, socket.gaierror)):
        return True
    several = re.findall(r"\[Errno (\d+)\]", str(cause))  # of a name with several addresses
    return str(errno.ECONNREFUSED) in several and {*map(int, several)} <= {errno.ECONNREFUSED, errno.EADDRNOTAVAIL}


def read_only(error: BaseException) -> bool:
    """Whether the server takes no writes, as a replica does."""
    return isinstance(error, theirs.ReadOnlyError) or str(error).startswith("READONLY ")


def of_replica(replication: bytes | str) -> str | None:
    """The master's place, if this is a replica that follows one: it will take no writes. None while a failover goes on."""
    text = replication.decode() if isinstance(replication, bytes) else replication
    told = dict(line.partition(":")[::2] for line in text.splitlines())
    if told.get("role") != "slave" or told.get("master_link_status") != "up":
        return None
    return f"{told.get('master_host')}:{told.get('master_port')}"


def is_replica(shown: str, master: str) -> ConfigError:
    return ConfigError(
        f"{shown} is a replica, which takes no writes: nothing was changed. Name its master in the URL; it says that this is "
        f"{master}."
    )


def refuses_changes(error: BaseException) -> bool:
    """Whether the server only lets others look, since too few replicas follow it."""
    return str(error).startswith("NOREPLICAS ")


def about_a_slot(error: BaseException) -> bool:
    """Whether one slot of a Cluster can't be used, and all else of its server can."""
    return moving(error) or isinstance(error, theirs.MovedError) or any(each in str(error) for each in NOBODY_HAS_IT)


def moving(error: BaseException) -> bool:
    """Whether a shard's keys are on their way to another node.

    ASK is not followed: of a script's two keys one never exists, so the node they go to refuses it, too, until all are there.
    """
    return isinstance(error, (theirs.AskError, theirs.TryAgainError))


def what_to_check(shown: str, told: str) -> str:
    """What may keep us from a server. `told`: the error's text."""
    tls = shown.startswith("rediss")
    if "CERTIFICATE_VERIFY_FAILED" in told:
        return "Is the certificate signed by the CA in ca=, and made for this host name (verify=ca takes any)?"
    if tls and ("SSL" in told or "Timeout" in told):
        return "Is the server running, can this machine connect to it, and does this port speak TLS?"
    if not tls and _CUT.search(told):
        return "Is it a Redis server without TLS? For one with TLS write rediss:// in the URL."
    return "Is the server running, and can this machine connect to it?"


def kept_from(place: str, shown: str, error: BaseException, told: str) -> str:
    """Why nothing was done at that server of those in the URL, and what to do. `told`: the error's text."""
    if read_only(error):
        advice = "Try again; if it stays a replica, name the new master in the URL."
        return f"{place} answers, but takes no writes now: {told}. Nothing was done. {advice}"
    if passing(error):
        return f"{place} answers, but can't do it now: {told}. Nothing was done. Try again."
    return f"{place} can't be reached: {told}. Nothing was done. {what_to_check(shown, told)}"


class Tries:
    """Of one command: how long it is repeated, and after which pauses.

    That is for the usual time, and until a shard has moved, unless its caller has a patience of its own.
    """

    # set when something fails only, as most commands are answered at once
    unsure: bool = False  # it was sent and not answered, so it may have acted
    _pause = SOON
    _redirected = False

    def __init__(self, usual: float, patience: float | None) -> None:
        self.began: float = time.monotonic()
        self._usual = usual
        self._patient = patience is None
        self._end = self.began + (usual if patience is None else patience)

    def has_run(self, *, insist: bool) -> None:
        """It has, or it may have. To insist on hearing so takes the usual time after all."""
        self.unsure = True
        if insist:
            self._patient, self._end = True, max(self._end, self.began + self._usual)

    def pause(self, error: BaseException, *, redirected: bool) -> float | None:
        """Seconds until the next try; None when there is none. `redirected`: the error said where to go."""
        if redirected and not self._redirected:
            self._redirected = True
            return 0.0
        if self._patient and moving(error):
            self._end = max(self._end, self.began + MIGRATION)
        pause, self._pause = self._pause, min(LATER, 2 * self._pause)
        return pause if time.monotonic() + pause <= self._end else None


def missing_script(error: theirs.ResponseError) -> bool:
    return isinstance(error, theirs.NoScriptError) or str(error).startswith("NOSCRIPT")


def layout_advice(found: str) -> str:
    """What to do about messages that another release stored."""
    if found.isdecimal() and int(found) < int(LAYOUT):
        return (
            "let workers of the older release finish its messages, then this one takes the empty namespace over. Or use "
            "another namespace, and send them there: `bide list TOPIC --all --json` of the older release prints them, and "
            "`bide send --from -` sends such lines"
        )
    return "update bide, or use another namespace"


def other_spread(shown: str, found: str) -> str:
    count = read_spread(found).current.size
    return (
        f"The messages of this namespace at {shown} are spread over {plural(count, 'shard')}: write shards={count} in the URL. "
        "Then `bide reshard` can give them another number."
    )


def translated(
    error: BaseException, shown: str, secrets: Iterable[str], place: str | None = None
) -> BideError | TooOld | Unpinned | OtherSpread:
    """The error to raise, with what to do. Nothing was changed. `place`: which of the servers in the URL it is from."""
    place = place or shown
    text = WHERE.sub("", redacted(str(error), secrets)).rstrip(".")
    if isinstance(error, SentinelRefused):
        return ConfigError(f"A Sentinel of {shown} refused the user or the password ({text}). {SENTINEL_LOGIN}.")
    if refused(error):
        place = error.place if isinstance(error, NodeRefused) else place
        return ConfigError(
            f"{place} refused the user or the password ({text}). Correct them in the URL, or change them on the server."
        )
    elsewhere = of_cluster(shown) if isinstance(error, theirs.MovedError) else from_server(shown, text)
    if elsewhere is not None:
        return elsewhere
    found = _CODE.search(text)
    code = found[0].split(" ")[0] if found else ""
    if found and code == "TOOOLD":
        return TooOld(int(found[2]), int(found[3]))
    if code == "UNPINNED":
        return Unpinned()
    if code == "TOOFAR":
        return BadTime("A message can't be due more than a hundred years from now.")
    if found and code == "BADLAYOUT":
        return SchemaMismatch(
            f"What is stored at {shown} has layout {found[4]}, and this release of bide reads layouts {LAYOUT} and {SPREAD}: "
            f"{layout_advice(found[4])}."
        )
    if found and code == "BADSHARDS":
        return OtherSpread(found[5])
    if found and code == "NORIGHT":
        return ConfigError(
            f"The user at {place} may not call {found[6]}: nothing was changed. `bide doctor --acl` prints the rights it needs."
        )
    if isinstance(error, theirs.OutOfMemoryError) or "OOM command" in text:
        return QueueFull(
            f"{place} is at its maxmemory and took nothing. What it holds can be drained; give it more memory to take more."
        )
    if lacking(error):
        return ConfigError(f"{place} lacks a command of Redis ({text}): nothing was changed. wake=poll in the URL needs fewer.")
    if isinstance(error, theirs.NoPermissionError) or "NOPERM" in text or "can't run this command" in text:
        return ConfigError(
            f"The user at {place} lacks a right ({text}): nothing was changed. `bide doctor --acl` prints the rights it needs."
        )
    if code == "OVERTAKEN":
        return Unavailable(f"{place} has answered a later call of this connection: this one was not done.")
    return EngineError(f"{place} failed: {text}. Nothing was changed.")
