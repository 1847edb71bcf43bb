"""Asks what is there, over AMQP and by the HTTP API of the management plugin. Nothing is made, and no message is taken."""

import asyncio
import base64
import json
import re
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import parse_qs, quote, unquote, urlsplit

from aiormq import exceptions as theirs
from aiormq.abc import AbstractChannel, DeliveredMessage

from bide.engines.rabbitmq.aio.line import AsyncBrokerLine
from bide.engines.rabbitmq.failures import told, translated
from bide.engines.rabbitmq.ladder import QueueNames
from bide.engines.rabbitmq.location import Address
from bide.errors import BideError, Unavailable

ENOUGH = 3  # queues that don't answer, after which no other one is asked: each may take the whole timeout
AHEAD = 500  # names of topics that the broker sends ahead
QUIET = 1.0  # seconds without another name, after which there is none
PAGE = 500  # queues an answer; the API takes no larger ones
MOST = 64_000_000  # bytes of an answer


class Counts(NamedTuple):
    """Of a queue. AMQP tells no more: what was delivered is not counted, nor what the broker is about to dead-letter."""

    ready: int
    consumers: int


class BrokerLook:
    """At one namespace, through one connection."""

    def __init__(self, address: Address, line: AsyncBrokerLine) -> None:
        self._address = address
        self._line = line
        self._channel: AbstractChannel | None = None

    async def told_by_broker(self) -> Mapping[str, object]:
        """What the broker said of itself when it was connected."""
        channel = await self._line.channel()
        return channel.connection.server_properties

    async def exchange(self, name: str) -> bool:
        """Whether it is there."""
        channel = await self._opened()
        with told(self._address.shown):
            try:
                await channel.exchange_declare(name, passive=True, timeout=self._address.timeout)
            except theirs.ChannelNotFoundEntity:
                return False
        return True

    async def queue(self, name: str) -> Counts | None:
        """None: it is not there. Raises Unavailable for one that is there and does not answer."""
        channel = await self._opened()
        with told(self._address.shown):
            try:
                found = await channel.queue_declare(name, passive=True, timeout=self._address.timeout)
            except theirs.ChannelNotFoundEntity as error:
                if "no queue" in str(error):
                    return None
                raise Unavailable(str(translated(error, self._address.shown))) from error
        return Counts(found.message_count or 0, found.consumer_count or 0)

    async def queues(self, names: Iterable[str]) -> dict[str, Counts | BideError | None]:
        """Of each what `queue` says, or why it says nothing. When several are silent, the others are taken for it."""
        found: dict[str, Counts | BideError | None] = {}
        errors: list[BideError] = []
        for name in names:
            if len(errors) == ENOUGH:
                found[name] = errors[-1]
                continue
            try:
                found[name] = await self.queue(name)
            except BideError as error:
                errors.append(error)
                found[name] = error
        return found

    async def topics(self, names: QueueNames) -> list[str]:
        """All that the index knows. Empty where there is none. The broker counts what is in it some seconds late."""
        index = await self.queue(names.index)
        if index is None:
            return []
        topics, known, came = dict[str, None](), 0, asyncio.Event()
        channel = await self._line.another()

        async def take(message: DeliveredMessage) -> None:
            nonlocal known
            topics[message.body.decode(errors="replace")] = None
            known += 1
            came.set()
            await channel.basic_ack(message.delivery_tag or 0, wait=False)

        with told(self._address.shown):
            try:
                await channel.basic_qos(prefetch_count=AHEAD)
                await channel.basic_consume(names.index, take, arguments={"x-stream-offset": "first"})
                while await _in_time(came, self._address.timeout if known < index.ready else QUIET):
                    came.clear()
                if known < index.ready:
                    raise TimeoutError
            finally:
                if not channel.is_closed:
                    await channel.close()
        return sorted(topics)

    async def _opened(self) -> AbstractChannel:
        """A channel; a new one after each error, as the broker closes it then."""
        if self._channel is None or self._channel.is_closed:
            self._channel = await self._line.another()
        return self._channel


async def _in_time(event: asyncio.Event, patience: float) -> bool:
    try:
        await asyncio.wait_for(event.wait(), patience)
    except TimeoutError:
        return False
    return True


class ApiRefused(Exception):
    """The API did not answer with what was asked for. The text says why, without a secret."""


class Missing(ApiRefused):
    """There is no such thing."""


class _Straight(urllib.request.HTTPRedirectHandler):
    """A redirect is an error: it would send the password elsewhere."""

    def redirect_request(self, *_: Any) -> None:
        return None


class Management:
    """The plugin of one broker, which also tells of the other nodes. Answers are believed to be what its pages promise."""

    def __init__(self, address: Address) -> None:
        assert address.management is not None
        parts, broker = urlsplit(address.management), urlsplit(address.urls[0])
        own = parts.username is not None
        user, password = (parts.username, parts.password) if own else (broker.username, broker.password)
        login = f"{unquote(user or '')}:{unquote(password or '')}".encode()
        self._headers = {"Authorization": "Basic " + base64.b64encode(login).decode(), "Accept": "application/json"}
        host = parts.netloc.rpartition("@")[2]
        self.shown: str = f"{parts.scheme}://{host}{parts.path.rstrip('/')}"
        self.user: str = unquote(user or "guest")
        self._vhost = unquote(broker.path.removeprefix("/"))
        self._timeout = address.timeout
        handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({}), _Straight()]
        if parts.scheme == "https":
            handlers.append(urllib.request.HTTPSHandler(context=_trust(parse_qs(broker.query))))
        self._opener = urllib.request.build_opener(*handlers)

    def get(self, *path: str, query: str = "") -> Any:
        """What is at this path, in which `{vhost}` stands for the broker's virtual host. Raises Refused."""
        parts = (self._vhost if part == "{vhost}" else part for part in path)
        url = "/".join([f"{self.shown}/api", *(quote(part, safe="") for part in parts)]) + query
        try:
            with self._opener.open(urllib.request.Request(url, headers=self._headers), timeout=self._timeout) as answer:
                return json.loads(answer.read(MOST))
        except urllib.error.HTTPError as error:
            raise (Missing if error.code == 404 else ApiRefused)(_why(error)) from None
        except (OSError, ValueError) as error:  # URLError is an OSError
            reason = getattr(error, "reason", error)
            raise ApiRefused(f"no answer: {getattr(reason, 'strerror', None) or type(reason).__name__}") from None

    def queues(self, prefix: str) -> Sequence[Mapping[str, Any]]:
        """Those whose names begin so, with what is known of them."""
        wanted, found, page, pages = quote(f"^{re.escape(prefix)}", safe=""), list[Mapping[str, Any]](), 1, 1
        while page <= pages:
            query = f"?page={page}&page_size={PAGE}&name={wanted}&use_regex=true"
            answer = self.get("queues", "{vhost}", query=query)
            found += answer["items"]
            page, pages = page + 1, int(answer["page_count"])
        return found


def _trust(options: Mapping[str, list[str]]) -> ssl.SSLContext:
    """The authorities that the broker's URL names are trusted here, too."""
    files = {name: options[name][0] for name in ("cafile", "capath") if name in options}
    return ssl.create_default_context(**files)  # type: ignore[arg-type]


def _why(error: urllib.error.HTTPError) -> str:
    """In words, as the plugin writes its reasons for itself."""
    try:
        said = json.loads(error.read(10_000)).get("reason")
    except (OSError, ValueError, AttributeError):
        said = None
    reasons = {401: "it refuses the login", 404: "it does not know that: is it the management API, and is the vhost right?"}
    return f"{reasons.get(error.code, f'it answers {error.code}')}{f' ({said})' if isinstance(said, str) else ''}"
