"""In what pages the messages of a queue are listed."""

import re

from bide import Outgoing, Queue
from bide.adopt.queue.listing import FEW, LARGE, Listing
from bide.adopt.queue.moved_message import Able


def test_large_messages_come_in_small_pages() -> None:
    large = "x" * 200_000
    with Queue("memory://") as queue:
        queue.send_many("letter", [Outgoing(large, delay="1h")] * 200)
        queue.send_many("mail", [Outgoing("x", delay="1h")] * 3_000)
        pages = list(Listing(queue.session.engine(), re.compile(".*"), Able()).pages(1_000))
    assert sum(map(len, pages)) == len({each.id for page in pages for each in page}) == 3_200
    assert max(map(len, pages)) == 1_000
    assert max(sum(len(each.body) for each in page) for page in pages) <= LARGE + FEW * len(large)
    assert len(pages) < 10
