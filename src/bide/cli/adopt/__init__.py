"""`bide adopt`: waiting messages of another system, moved into a queue. Its commands: one for each kind of source."""

from bide.cli.adopt import brokers, table, task_queues
from bide.cli.options import Section

HELP = (
    "Move waiting messages of another system into a queue, while its producers and consumers go on.\n\n"
    "Each message is moved by one step that old consumers see as a whole: they get it, or bide does. A run that is stopped or "
    "killed is resumed by the same command. The documentation has the order of steps."
)
EPILOG = (
    "Examples:\n\n"
    "  bide adopt redis-zset delayed --topic t --source redis://old/0 --dry-run\n\n"
    "  bide adopt redis-zset delayed --topic t --source redis://old/0"
)

section: Section = Section("Sources")
for _source in (brokers, task_queues, table, brokers):
    section.typer.registered_commands += _source.section.typer.registered_commands
