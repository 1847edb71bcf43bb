"""What `bide send` is told, checked and made into a message that is ready to go."""

import msgspec
import typer

from bide.cli.messages.body import BodyError, body_of
from bide.cli.output.times import delay_of, one_time
from bide.types import IfExists, Outgoing, Priority


def source_of(body: str | None, source: str | None, *, stdin: bool) -> str | None:
    """The file that has a body a line; None when there is one message."""
    asked = [each for each in (source, "-" if stdin else None, "-" if body == "-" else None) if each is not None]
    if not asked:
        return None
    if len(set(asked)) > 1 or body not in (None, "-"):
        raise typer.BadParameter("Give one of them: a body, or where to read them from.", param_hint="BODY / --from / --stdin")
    return asked[0]


def message(
    *,
    delay: str | None,
    at: str | None,
    key: str | None,
    if_exists: IfExists,
    priority: Priority,
    expires_in: str | None,
    max_attempts: int | None,
    headers: list[str],
) -> Outgoing:
    """All but the body."""
    wait, instant = one_time(delay, at)
    return Outgoing(
        delay=wait,
        at=instant,
        key=key,
        if_exists=if_exists,
        priority=priority,
        expires_in=delay_of(expires_in, "--expires-in"),
        max_attempts=max_attempts,
        headers=dict(_header(each) for each in headers) or None,
    )


def with_body(message: Outgoing, body: str | None, *, text: bool) -> Outgoing:
    try:
        return message if body is None else msgspec.structs.replace(message, body=body_of(body, text=text))
    except BodyError as error:
        raise typer.BadParameter(
            f"{error}. Quote it for the shell: '{{\"order\": 42}}'. A text is quoted twice, '\"text\"', or has --text.",
            param_hint="BODY",
        ) from None


def refuse_key(message: Outgoing) -> None:
    """One key can't be that of many messages."""
    if message.key is not None:
        raise typer.BadParameter("A key belongs to one message, and here are many: leave it out.", param_hint="--key")


def _header(written: str) -> tuple[str, str]:
    name, mark, value = written.partition("=")
    if not mark or not name:
        raise typer.BadParameter("Write it as name=value.", param_hint="--header")
    return name, value
