"""Asks the HTTP API of the broker's management plugin."""

import base64
import json
import re
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

from bide.engines.rabbitmq.location import Address

PAGE = 500  # queues an answer; the API takes no larger ones
MOST = 64_000_000  # bytes of an answer


class Refused(Exception):
    """The API did not answer with what was asked for. The text says why, without a secret."""


class Missing(Refused):
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
            raise (Missing if error.code == 404 else Refused)(_why(error)) from None
        except (OSError, ValueError) as error:  # URLError is an OSError
            reason = getattr(error, "reason", error)
            raise Refused(f"no answer: {getattr(reason, 'strerror', None) or type(reason).__name__}") from None

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
