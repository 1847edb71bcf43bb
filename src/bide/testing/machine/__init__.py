"""Drives an engine and the model side by side: Hypothesis thinks up histories, and shrinks the one that fails.

`python -m bide.testing.machine memory:// --examples 200 --steps 100 --seeds 10` checks the engine of a URL.
"""

from bide.testing.machine.check import check_engine, from_url, machine_for
from bide.testing.machine.steps import EngineMachine

__all__ = ["EngineMachine", "check_engine", "from_url", "machine_for"]
