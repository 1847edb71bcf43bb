"""The peers, and bide: which command runs a worker of each, at which settings, and where those are documented."""

from benchmarks.peers.peer import Peer

BIDE = Peer(
    name="bide",
    title="bide",
    package="bide",
    workers=("{bin}/bide worker on_bide:queue --log-level warning",),
    settings="`bide worker` at its defaults: one process, 100 handlers at the same time; uvloop and hiredis from its extras",
    documented="[Worker](worker.md)",
    many=100_000,
    batch="`send_many`",
    sent=100_000,
)

BIDE_ON_POSTGRES = Peer(
    name="bide_postgresql",
    same_as="bide",
    title="bide on PostgreSQL",
    package="bide",
    workers=BIDE.workers,
    settings="the same",
    documented="[PostgreSQL](postgres.md)",
    many=40_000,
    batch=BIDE.batch,
    sent=40_000,
    server="postgresql",
)

BOTH = (BIDE, BIDE_ON_POSTGRES)


def beside(peer: Peer) -> Peer:
    """Which bide takes turns with a peer: the one that has its messages in PostgreSQL, if the peer has, too."""
    return BIDE_ON_POSTGRES if peer.server == "postgresql" else BIDE


BULLMQ = "Node; one worker with `concurrency: 200`; finished jobs removed"
CELERY = "{bin}/celery --app on_celery worker --loglevel WARNING --without-gossip --without-mingle --without-heartbeat"
TASKIQ = "{bin}/taskiq worker on_taskiq:broker --workers 2 --log-level WARNING"

PEERS = {
    peer.name: peer
    for peer in (
        Peer(
            name="celery",
            title="Celery",
            package="celery",
            workers=(f"{CELERY} --pool prefork --concurrency 2",),
            drain=(f"{CELERY} --pool solo --prefetch-multiplier 128",),
            settings="prefork with two processes; in the drain `--pool solo`, which was faster there, and 128 messages"
            " prefetched; results ignored; no gossip, mingle or heartbeat",
            documented="Celery's user guide, *Optimizing*, *Concurrency* and *Workers*",
            many=4_000,
            lead=7.0,
        ),
        Peer(
            name="dramatiq",
            title="Dramatiq",
            package="dramatiq",
            workers=("{bin}/dramatiq on_dramatiq --processes 2 --threads 8 --skip-logging",),
            settings="two processes of eight threads, `dramatiq_queue_prefetch=128`, and `dramatiq_worker_timeout=100`,"
            " so that idle workers wait for 100 ms at most",
            documented="`dramatiq --help`; Dramatiq's reference, *Environment Variables*",
            environment=(("dramatiq_queue_prefetch", "128"), ("dramatiq_worker_timeout", "100")),
            many=12_000,
            lead=5.0,
        ),
        Peer(
            name="rq",
            title="RQ",
            package="rq",
            workers=("{bin}/rq worker --with-scheduler --quiet --worker-class rq.SimpleWorker --url {url}",),
            settings="`SimpleWorker`, which does not fork for each job, with its scheduler; results not kept",
            documented="RQ's docs, *Workers: Performance Notes* and *Scheduling*",
            many=800,
            batch="a pipeline",
            sent=6_000,
        ),
        Peer(
            name="arq",
            title="arq",
            package="arq",
            workers=("{bin}/python {program} work",),
            settings="`poll_delay=0.01`, `max_jobs=200`, no results kept; uvloop",
            documented="arq's docs, *Reference: Worker*",
            many=5_000,
            batch="50 coroutines",
            sent=8_000,
        ),
        Peer(
            name="huey",
            title="Huey",
            package="huey",
            workers=("{bin}/huey_consumer on_huey.huey --quiet --workers 2 --worker-type process --scheduler-interval 1",),
            settings="two processes; the scheduler at its shortest interval, one second",
            documented="Huey's docs, *Consuming Tasks*",
            many=10_000,
            lead=5.0,
        ),
        Peer(
            name="taskiq",
            title="taskiq",
            package="taskiq",
            workers=(
                TASKIQ,
                "{bin}/taskiq scheduler on_taskiq:scheduler --update-interval 1 --loop-interval 1 --log-level WARNING",
            ),
            settings="the stream broker; two processes of 100 tasks each, uvloop; 100 more prefetched in the drain;"
            " the scheduler looks every second",
            documented="taskiq's docs, *CLI*; taskiq-redis's README",
            many=8_000,
            batch="50 coroutines",
            sent=6_000,
            lead=8.0,
            drain=(f"{TASKIQ} --max-prefetch 100",),
        ),
        Peer(
            name="saq",
            title="SAQ",
            package="saq",
            workers=("{bin}/python {program} work",),
            settings="10 jobs at the same time, its default (more were not faster); a look for scheduled jobs every second,"
            " its shortest interval; uvloop and hiredis",
            documented="SAQ's docs, *Worker*",
            many=4_000,
            batch="50 coroutines",
            sent=10_000,
        ),
        Peer(
            name="docket",
            title="docket",
            package="pydocket",
            workers=("{bin}/python {program} work",),
            settings="`concurrency=1000`, with `max_connections=3000` in the URL, since a task may take a connection or more;"
            " `minimum_check_interval` and `scheduling_resolution` 10 ms; `execution_ttl=0`; uvloop and hiredis",
            documented="docket's docs, *Docket in Production*",
            many=4_000,
            batch="`add_many`",
            sent=10_000,
        ),
        Peer(
            name="bullmq",
            title="BullMQ",
            package="bullmq",
            workers=("node {program} work",),
            settings=BULLMQ,
            documented="BullMQ's docs, *Parallelism and Concurrency* and *Going to production*",
            many=40_000,
            batch="`addBulk`",
            sent=30_000,
        ),
        Peer(
            name="beanstalkd",
            title="beanstalkd",
            package="greenstalk",
            workers=("{bin}/python {program} work",),
            settings="greenstalk; the server keeps its jobs in memory only, as it does by default",
            documented="beanstalkd's protocol, `doc/protocol.txt`",
            many=20_000,
            batch="pipelined `put`",
            sent=80_000,
            server="beanstalkd",
        ),
        Peer(
            name="zset",
            title="Hand-made sorted set",
            package="redis",
            workers=("{bin}/python {program} work",),
            settings="redis-py with hiredis; `ZRANGEBYSCORE` and `ZREM` for each message; 10 ms of sleep when nothing is due",
            documented="Redis's docs; the loop is everybody's own",
            many=12_000,
            batch="a pipeline of 1,000",
            sent=80_000,
        ),
        Peer(
            name="procrastinate",
            title="Procrastinate",
            package="procrastinate",
            workers=("{bin}/python {program} work",),
            settings="20 jobs at the same time; polls every 100 ms; deletes what succeeded; uvloop",
            documented="Procrastinate's docs, *Launch a worker*, *Concurrency* and *Delete jobs*",
            many=600,
            batch="`batch_defer`",
            sent=10_000,
            server="postgresql",
            prepare="{bin}/python {program} prepare",
        ),
        Peer(
            name="pgqueuer",
            title="pgqueuer",
            package="pgqueuer",
            workers=("{bin}/python {program} work",),
            settings="asyncpg; `batch_size=100`; its settings for autovacuum; uvloop",
            documented="pgqueuer's docs, *Performance Tuning*",
            many=20_000,
            batch="`enqueue` of a list",
            sent=30_000,
            server="postgresql",
            prepare="{bin}/python {program} prepare",
        ),
        Peer(
            name="oban",
            title="oban-py",
            package="oban",
            workers=("{bin}/python {program} work",),
            settings="1,000 jobs at the same time; looks for scheduled jobs every 100 ms; Python 3.12; uvloop",
            documented="Oban's docs, *Defining Queues* and *Ready for Production*",
            many=6_000,
            batch="`enqueue_many`",
            sent=5_000,
            server="postgresql",
            prepare="{bin}/python {program} prepare",
            lead=6.0,
        ),
        Peer(
            name="bullmq_postgresql",
            same_as="bullmq",
            title="BullMQ on PostgreSQL",
            package="bullmq",
            workers=("node {program} work",),
            settings=f"{BULLMQ}; a pool of 20 connections",
            documented="BullMQ's docs, *PostgreSQL backend*",
            many=3_000,
            batch="`addBulk`",
            sent=20_000,
            server="postgresql",
            prepare="node {program} prepare",
        ),
        Peer(
            name="django_ox",
            title="django-ox",
            package="django-ox",
            workers=("{bin}/python {program} ox_worker --processes 2 --concurrency 4 --interval 0.1",),
            settings="two processes of four threads; looks every 100 ms; Django 6.1, Python 3.12",
            documented="django-ox's docs, *Configuration*",
            many=800,
            batch="`enqueue_many`",
            sent=4_000,
            server="postgresql",
            prepare="{bin}/python {program} migrate --verbosity 0",
        ),
    )
}
