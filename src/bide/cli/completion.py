"""Topic names for the shell's completion: what can be told at once, and never an error."""

import threading

import typer

from bide.cli.place import Place

PATIENCE = 2.0  # seconds that somebody who pressed Tab will wait


def topics(ctx: typer.Context, incomplete: str) -> list[str]:
    """The topics that begin so. Nothing is made, and whatever goes wrong is silence."""
    import bide.queue  # noqa: F401 - what takes its time but can't hang is not counted

    found: list[str] = []
    given = ctx.params
    place = Place(given.get("url"), given.get("url_file"), given.get("namespace"))

    def look() -> None:
        try:
            with place.queue() as queue:
                found.extend(queue.topics())
        except Exception:
            return

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    return [each for each in found if each.startswith(incomplete) and each.isprintable()]
