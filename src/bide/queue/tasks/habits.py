"""What people write who come from another task queue, and what to write here."""

from bide.types import SendOptions

ATTRIBUTES = {
    "delay": "{name}.send(…) sends it for now, {name}.after('5m').send(…) for later",
    "apply_async": "{name}.send(…) sends it for now, {name}.after('5m').send(…) for later, and other options are given in "
    "{name}.options(…)",
    "schedule": "{name}.after('5m').send(…), or {name}.at(when).send(…)",
    "enqueue": "{name}.send(…)",
    "kiq": "{name}.send(…)",
    "si": "messages that wait for others are sent with depends_on=",
    "retry": "raise bide.Retry('5m') in the handler, or any other exception for the task's own backoff",
}
"""Of a task."""

SENDS = {
    "countdown": "after(…), as in task.after('5m').send(…)",
    "eta": "at(…), as in task.at(when).send(…)",
    "args": "send(…), which takes the function's arguments",
    "kwargs": "send(…), which takes the function's arguments",
    "expires": "expires_in=",
    "task_id": "key=",
    "job_id": "key=",
    "max_retries": "max_attempts=, which counts the first attempt, too",
    "retries": "max_attempts=, which counts the first attempt, too",
    "queue": "the task's topic, as in @queue.task('mail')",
}
"""Options of a send of a task."""

MESSAGES = SENDS | {
    "countdown": "delay=, as in delay='5m'",
    "eta": "at=, an aware datetime",
    "args": "the body",
    "kwargs": "the body",
    "queue": "the topic, which comes first",
}
"""Options of a send of a queue."""

TASKS = {
    "name": "the topic, as in @queue.task('order.cancel')",
    "queue": "the topic, as in @queue.task('order.cancel')",
    "max_retries": "max_attempts=, which counts the first attempt, too",
    "retries": "max_attempts=, which counts the first attempt, too",
    "default_retry_delay": "backoff=, as in backoff=exponential('1s', cap='10m')",
    "retry_backoff": "backoff=, as in backoff=exponential('1s', cap='10m')",
    "autoretry_for": "retry_for=",
    "dont_autoretry_for": "no_retry_for=",
    "rate_limit": "rate=, which counts over all workers, as in rate='100/m'",
    "time_limit": "timeout=",
    "soft_time_limit": "timeout=",
    "expires": "expires_in=",
    "bind": "bide.current(), which gives a handler its delivery",
    "acks_late": "nothing: a message is acknowledged when its handler has returned",
    "ignore_result": "nothing: a result is kept only with keep=",
    "result_expires": "keep=",
    "unique": "a key of each send, as in task.options(key='order:42').send(…)",
}
"""Options of a task."""


def no_option(name: str, known: dict[str, str]) -> str:
    """What to say of an option that no send has."""
    return f"{name} is no option of a send.{instead(name, known)} There is: {', '.join(sorted(SendOptions.__optional_keys__))}."


def instead(of: str, known: dict[str, str]) -> str:
    """A sentence to go on with, or nothing."""
    return f" Here it is {known[of]}." if of in known else ""
