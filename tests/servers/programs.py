"""Decides what a missing server means for a test: a skip on a laptop, a failure where everything must be tested."""

import os
import shutil

import pytest


def needs_program(name: str) -> str:
    """The path of a program. Without it the test is skipped, or fails when the environment variable CI is set."""
    path = shutil.which(name) or shutil.which(name, path="/usr/sbin")
    if path is not None:
        return path
    said = f"{name} is not on the PATH; `make servers` installs it on Debian"
    if os.environ.get("CI"):
        pytest.fail(f"{said}; under CI nothing is skipped", pytrace=False)
    pytest.skip(said)
