"""`bide pause` and `bide resume`: whether a topic's messages are handed out."""

from bide.cli.exits import Exit
from bide.cli.output.out import say, say_json
from bide.cli.place import Place
from bide.cli.topics.nothing import say_if_unknown


def run(place: Place, topic: str, *, paused: bool, as_json: bool = False) -> int:
    with place.queue() as queue:
        say_if_unknown(queue, topic)
        if paused:
            queue.pause(topic)
        else:
            queue.resume(topic)
    if as_json:
        say_json({"topic": topic, "paused": paused})
    elif paused:
        say(f"{topic} is paused: what falls due waits, and what is being worked on goes on.")
    else:
        say(f"{topic} is handed out again.")
    return Exit.OK
