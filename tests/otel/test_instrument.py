"""BideInstrumentor: turned on and off, and found by `opentelemetry-instrument`."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import bide
from bide import BadOption, BadTime, MessagesSending, Queue
from bide.otel import BideInstrumentor
from tests.otel.receiver import Received

PROGRAM = """
from bide import Queue
with Queue("memory://") as queue:
    queue.send("t", 1)
"""


@pytest.mark.parametrize("disabled", [False, True])
def test_opentelemetry_instrument_finds_it(received: Received, tmp_path: Path, disabled: bool) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    settings = {
        "OTEL_TRACES_EXPORTER": "otlp",
        "OTEL_METRICS_EXPORTER": "none",
        "OTEL_LOGS_EXPORTER": "none",
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        "OTEL_EXPORTER_OTLP_ENDPOINT": received.url,
        "OTEL_SERVICE_NAME": "shop",
    }
    if disabled:
        settings["OTEL_PYTHON_DISABLED_INSTRUMENTATIONS"] = "bide"
    command = [str(Path(sys.executable).with_name("opentelemetry-instrument")), sys.executable, str(tmp_path / "program.py")]
    done = subprocess.run(command, env=os.environ | settings, capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 0, done.stderr
    assert [(each.name, each.service) for each in received.spans] == ([] if disabled else [("send t", "shop")])


def test_it_is_one_for_the_process_and_begins_once(traced: Any, received: Received) -> None:
    assert not BideInstrumentor().is_instrumented_by_opentelemetry
    traced()
    traced()
    assert BideInstrumentor().is_instrumented_by_opentelemetry
    with Queue("memory://") as queue:
        queue.send("t", 1)
        BideInstrumentor().uninstrument()
        BideInstrumentor().uninstrument()
        queue.send("t", 2)
        first, second = queue.receive("t", limit=2)

    assert len(received.spans) == 1
    assert ("traceparent" in first.headers, dict(second.headers)) == (True, {})


def test_options_are_checked(traced: Any) -> None:
    with pytest.raises(BadOption, match=r"instrument\(\) has no option link_before"):
        BideInstrumentor().instrument(link_before=1)
    with pytest.raises((BadOption, BadTime), match="link_after"):
        BideInstrumentor().instrument(link_after="soon")
    assert not BideInstrumentor().is_instrumented_by_opentelemetry


def test_bide_loads_no_opentelemetry_by_itself() -> None:
    code = "import sys, bide, bide.cli, bide.worker; print([each for each in sys.modules if 'opentelemetry' in each])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


def test_other_subscribers_see_the_headers(traced: Any) -> None:
    seen: list[set[str]] = []

    class Sees:
        def sending(self, event: MessagesSending) -> None:
            seen.extend(set(each.headers) for each in event.messages)

    traced()
    with bide.subscribe(Sees()), Queue("memory://") as queue:
        queue.send("t", 1, delay="1h")
    assert seen == [{"traceparent", "bide-trace"}]
