"""`bide script`: what programs in other languages run on a Redis server."""

from typing import Annotated, Literal

import typer

import bide
from bide.cli.exits import Exit
from bide.cli.options import Section
from bide.cli.output import echo
from bide.errors import MissingExtra

section: Section = Section("System")


@section.command(
    "script",
    help="Print the Lua script by which programs in other languages send messages through Redis.\n\n"
    "The script is complete: run it with EVAL, redis-cli --eval, or your client's way to define a command. Its first lines say "
    "which keys and arguments it takes. Print it again when you update bide.",
    examples=(("bide script send > send.lua", ""),),
)
def script(
    name: Annotated[Literal["send"], typer.Argument(help="What the script does: send one message.")],
) -> int:
    try:
        from bide.engines.redis.script import send_script
    except ModuleNotFoundError as missing:
        raise MissingExtra(f'The script needs the package {missing.name}: pip install "bide[redis]"') from missing
    echo(f"-- bide {bide.__version__}")
    for line in send_script().splitlines():
        echo(line)
    return Exit.OK
