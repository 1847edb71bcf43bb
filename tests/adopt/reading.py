"""What is in a queue."""

from bide import Queue
from bide.types import Info

URL = "sqlite:///bide.db"


def everything(topic: str, url: str = URL) -> list[Info]:
    """All messages of a topic, page by page."""
    found: list[Info] = []
    with Queue(url) as queue:
        page = queue.messages(topic, limit=1_000)
        found += page
        while page.after is not None:
            page = queue.messages(topic, limit=1_000, after=page.after)
            found += page
    return found
