"""Two queues, and the command."""

from tests.cli.conftest import bide, bide_process, folder

__all__ = ["bide", "bide_process", "folder"]
