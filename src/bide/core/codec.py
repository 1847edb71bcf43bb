"""Bodies as bytes: JSON unless told otherwise. Never pickle, and nothing is ever imported by name."""

import math
from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from bide.core.models import loss_of
from bide.core.times import TIMES, check, exact, odd, told_in
from bide.errors import BadBody, TooLarge

MAX_BODY = 256 * 1024


class Codec(Protocol):
    """Encodes bodies to bytes and decodes them. Write your own to encrypt or compress bodies.

    `encode` and `decode` may raise any exception; the queue raises BadBody then.
    """

    def encode(self, body: Any, /) -> bytes: ...
    def decode(self, raw: bytes, /) -> Any: ...


def _dumped(value: Any) -> Any:
    """A pydantic model, or what says by itself what it is made of."""
    dump = getattr(value, "model_dump", None)
    if dump is None:
        raise TypeError(f"JSON has no form for objects of type {type(value).__name__}")
    if not hasattr(type(value), "__pydantic_fields__"):
        return dump(mode="json")
    kind: Any = type(value)
    if (lost := loss_of(kind)) is not None:
        raise TypeError(lost)
    return dump(mode="json", by_alias=True, round_trip=True)  # what the model makes the same of again


def _checked(value: Any) -> Any:
    """The same, but a model whose instants would be told wrong is refused."""
    if hasattr(type(value), "__pydantic_fields__"):
        check(value.model_dump())
    return _dumped(value)


class Json:
    """JSON by msgspec: dataclasses, Structs, datetimes, UUIDs, Decimals, enums, bytes (as base64), pydantic models go in."""

    def __init__(self) -> None:
        self._encode = msgspec.json.Encoder(decimal_format="string", enc_hook=_dumped).encode
        self.decode: Callable[[bytes], Any] = msgspec.json.Decoder().decode

    def encode(self, body: Any, /) -> bytes:
        raw = self._encode(body)
        if raw.find(b"null") >= 0:  # faster than `in`
            _refuse_not_a_number(msgspec.to_builtins(body, enc_hook=_dumped))
        if told_in(raw):
            plain = msgspec.to_builtins(body, builtin_types=TIMES, enc_hook=_checked)
            if odd(plain) is not None:
                return self._encode(exact(plain))
        return raw


JSON = Json()


class Encoded(bytes):
    """A body that was encoded already."""


def encode(codec: Codec, body: object, limit: int) -> bytes:
    """A body as bytes, or BadBody or TooLarge with a sentence."""
    try:
        raw = codec.encode(body)
    except RecursionError:
        raise BadBody(
            "The body is nested too deeply, or holds itself. Send a flatter one, or an id to look it up by."
        ) from None
    except Exception as error:
        raise BadBody(
            f"The body can't be encoded: {_reason(error)}. Send what JSON can hold (dict, list, str, numbers, bool, None), "
            "a dataclass or msgspec.Struct of such, or give the queue a codec= of your own."
        ) from error
    if type(raw) is not bytes:
        raise BadBody(f"The codec's encode() gave {type(raw).__name__} in place of bytes.")
    if len(raw) > limit:
        raise TooLarge(
            f"The body is {len(raw):,} bytes encoded and the limit is {limit:,}. "
            "Store it elsewhere and send its address, or raise the queue's max_body."
        )
    return raw


def decode(codec: Codec, raw: bytes, limit: int) -> Any:
    """Stored bytes as a body, or BadBody or TooLarge with a sentence."""
    if len(raw) > limit:
        raise TooLarge(
            f"The stored body is {len(raw):,} bytes and the limit is {limit:,}; raise the queue's max_body to read it."
        )
    try:
        return codec.decode(raw)
    except RecursionError:
        raise BadBody("The stored body is nested too deeply.") from None
    except Exception as error:
        raise BadBody(f"The stored body can't be decoded: {_reason(error)}. Was it sent with another codec?") from error


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:300]


def _refuse_not_a_number(body: object) -> None:
    """msgspec writes NaN and infinity as null, which would change the body in silence."""
    left = [body]
    while left:
        each = left.pop()
        if isinstance(each, float) and not math.isfinite(each):
            raise ValueError(f"it holds {each}, which JSON has no word for")
        if isinstance(each, dict):
            left.extend(each.values())
        elif isinstance(each, list | tuple | set | frozenset):
            left.extend(each)
