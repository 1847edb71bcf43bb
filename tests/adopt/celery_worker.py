"""What a worker of Celery is for its broker, as far as the adopter meets it: its tasks in Redis, and its remote control."""

import base64
import json
import threading
import time
import uuid
from datetime import UTC, datetime
from typing import Any

import redis

CHANNEL = "/0.celery.pidbox"


def envelope(task: str, args: list[Any], kwargs: dict[str, Any], eta: float | None = None, **more: Any) -> dict[str, Any]:
    """A task as Celery 5.7 puts it into a list."""
    known = more.pop("id", str(uuid.uuid4()))
    after = {"callbacks": None, "errbacks": None, "chain": None, "chord": None, **more.pop("after", {})}
    headers = {
        "lang": "py",
        "task": task,
        "id": known,
        "shadow": None,
        "eta": None if eta is None else datetime.fromtimestamp(eta, UTC).isoformat(),
        "expires": None,
        "group": None,
        "group_index": None,
        "retries": 0,
        "timelimit": [None, None],
        "root_id": known,
        "parent_id": None,
        "argsrepr": repr(args),
        "kwargsrepr": repr(kwargs),
        "origin": "gen5810@vm",
        "ignore_result": False,
        "replaced_task_nesting": 0,
        "stamped_headers": None,
        "stamps": {},
    }
    return {
        "body": base64.b64encode(json.dumps([args, kwargs, after]).encode()).decode(),
        "content-encoding": "utf-8",
        "content-type": "application/json",
        "headers": headers | more,
        "properties": {
            "correlation_id": known,
            "reply_to": "1108d0f3-be2b-33eb-a1d5-734884094e61",
            "delivery_mode": 2,
            "delivery_info": {"exchange": "", "routing_key": "celery"},
            "priority": 0,
            "body_encoding": "base64",
            "delivery_tag": str(uuid.uuid4()),
        },
    }


def queued(client: redis.Redis, task: dict[str, Any], key: str = "celery") -> str:
    """Put a task into a queue, as a producer does. Its id."""
    client.lpush(key, json.dumps(task))
    return str(task["headers"]["id"])


def delivered(client: redis.Redis, task: dict[str, Any]) -> str:
    """Note that a worker has a task, as it does."""
    tag = task["properties"]["delivery_tag"]
    client.zadd("unacked_index", {tag: time.time()})
    client.hset("unacked", tag, json.dumps([task, "", task["properties"]["delivery_info"]["routing_key"]]))
    return str(task["headers"]["id"])


class Worker:
    """Answers remote control, for `with`. `deaf` to these methods: it hears them, and does not answer."""

    def __init__(self, client: redis.Redis, *, deaf: tuple[str, ...] = ()) -> None:
        self.revoked: list[str] = []
        self.deaf: tuple[str, ...] = deaf
        self._client = client
        made: Any = client
        self._pubsub: Any = made.pubsub()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._heard = threading.Event()

    def __enter__(self) -> "Worker":
        self._pubsub.psubscribe(CHANNEL)
        self._thread.start()
        assert self._heard.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._pubsub.punsubscribe()
        self._thread.join()
        self._pubsub.close()

    def _run(self) -> None:
        for each in self._pubsub.listen():
            if each["type"] == "psubscribe":
                self._heard.set()
            elif each["type"] == "punsubscribe":
                return
            else:
                outer = json.loads(each["data"])
                encoded = outer["properties"].get("body_encoding") == "base64"
                self._obey(json.loads(base64.b64decode(outer["body"]) if encoded else outer["body"]))

    def _obey(self, asked: dict[str, Any]) -> None:
        method = asked["method"]
        if method == "revoke":
            self.revoked += asked["arguments"]["task_id"]
        if method in self.deaf or not asked["reply_to"]:
            return
        answers = {"ping": {"ok": "pong"}, "revoke": {"ok": "tasks flagged as revoked"}, "revoked": self.revoked}
        reply = {
            "body": base64.b64encode(json.dumps({"celery@vm": answers[method]}).encode()).decode(),
            "content-encoding": "utf-8",
            "content-type": "application/json",
            "headers": {"ticket": asked["ticket"], "clock": 3},
            "properties": {"body_encoding": "base64"},
        }
        exchange, key = asked["reply_to"]["exchange"], asked["reply_to"]["routing_key"]
        bound: Any = self._client.smembers(f"_kombu.binding.{exchange}")
        for member in bound:
            routing_key, _, queue = member.decode().split("\x06\x16")
            if routing_key == key:
                self._client.lpush(queue, json.dumps(reply))
