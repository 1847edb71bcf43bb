"""RQ. Jobs that are due at once go by enqueue_many, scheduled ones by a pipeline; results are not kept."""

from collections.abc import Sequence
from datetime import UTC, datetime

from redis import Redis
from rq import Queue
from workload import URL, Item, handle, main, parts

JOB = "on_rq.work"  # by name: this file may run as __main__


def work(payload: str) -> None:
    handle(payload)


client = Redis.from_url(URL)
queue = Queue(connection=client)


def send(payload: str, due: float | None, pipeline: object = None) -> None:
    if due is None:
        queue.enqueue(JOB, payload, result_ttl=0, pipeline=pipeline)
    else:
        queue.enqueue_at(datetime.fromtimestamp(due, UTC), JOB, payload, result_ttl=0, pipeline=pipeline)


def send_many(items: Sequence[Item]) -> None:
    for part in parts(items):
        with client.pipeline() as pipeline:
            if part[0][1] is None:
                jobs = [Queue.prepare_data(JOB, args=(payload,), result_ttl=0) for payload, _ in part]
                queue.enqueue_many(jobs, pipeline=pipeline)
            else:
                for payload, due in part:
                    send(payload, due, pipeline)
            pipeline.execute()


if __name__ == "__main__":
    main(send, send_many)
