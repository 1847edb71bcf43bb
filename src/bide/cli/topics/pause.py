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
        waiting = 0 if paused else queue.stats(topic).ready
    if as_json:
        say_json({"topic": topic, "paused": paused})
    elif paused:
        say(f"Paused {topic}; due messages wait, and handlers that run go on.")
    else:
        say(f"Resumed {topic}; {waiting:,} {'message' if waiting == 1 else 'messages'} waiting.")
    return Exit.OK
