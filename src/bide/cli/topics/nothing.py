"""What to say of a topic that holds nothing: it may be a slip of the pen."""

import difflib

from bide.cli.output.out import tell
from bide.queue import Queue

SHOWN = 5  # names


def say_if_unknown(queue: Queue, topic: str) -> None:
    """A word beside the answer, when there is no such topic at present."""
    known = queue.topics()
    if topic in known:
        return
    alike = difflib.get_close_matches(topic, known, SHOWN) or sorted(known)[:SHOWN]
    more = "" if len(known) <= len(alike) else " …"
    there = f"There is: {', '.join(alike)}{more}" if alike else "No topic holds one."
    tell(f"bide: no message of {topic} is stored at present. {there}")
