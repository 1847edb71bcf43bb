"""The story as plain lines, for a file, a pipe or a terminal without colours."""

from bide.cli.demo.board import Event


def print_line(event: Event) -> None:
    print(f"{event.at:5.2f} s  {event.text}", flush=True)
