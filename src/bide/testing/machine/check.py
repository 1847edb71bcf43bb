"""Has Hypothesis think up histories of an engine, and shrink the one that fails."""

import secrets

import hypothesis
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from bide.clock import ManualClock
from bide.engines.base import Settings
from bide.engines.registry import Source, source
from bide.errors import ConfigError
from bide.testing.machine.steps import EngineMachine
from bide.testing.pair import MakeSource


def machine_for(make_source: MakeSource, colour: str) -> type[EngineMachine]:
    """The state machine of one engine in one colour, for Hypothesis to run."""
    return type("EngineMachine", (EngineMachine,), {"make_source": staticmethod(make_source), "colour": colour})


def check_engine(make_source: MakeSource, *, colour: str, examples: int, steps: int, seed: int = 0) -> None:
    """Try so many histories, the same ones for the same seed; raises with the shortest that fails."""
    how = settings(
        max_examples=examples,
        stateful_step_count=steps,
        database=None,
        deadline=None,
        print_blob=False,
        phases=[Phase.generate, Phase.shrink],
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(hypothesis.seed(seed)(machine_for(make_source, colour)), settings=how)


def from_url(url: str) -> MakeSource:
    """Sources at one URL, each with a namespace that nobody else has. Where an engine takes a clock, it stands still."""

    def make(*, dead_for: int, dead_max: int) -> Source:
        asked = {"url": url, "namespace": f"check-{secrets.token_hex(8)}", "dead_for": dead_for, "dead_max": dead_max}
        try:
            return source(Settings(**asked, clock=ManualClock()))  # type: ignore[arg-type]
        except ConfigError:
            return source(Settings(**asked))  # type: ignore[arg-type]

    return make
