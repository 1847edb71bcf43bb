"""Makes the environment of each peer under build/peers, once; anew when its pins have changed."""

import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from benchmarks.peers.peer import BUILD, pins

TIME = 600.0  # seconds, for one environment
PYENV = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")


class NotInstalled(Exception):
    """Why a peer can't be measured here, in a sentence."""


def environment(name: str, packages: dict[str, list[str]] | None = None) -> Path:
    """The folder with the environment of that name, with these packages in it, or else with what versions.toml says."""
    packages = pins()[name] if packages is None else packages
    folder, wanted = BUILD / name, json.dumps(packages)
    done = folder / "pins.json"
    if done.exists() and done.read_text(encoding="utf-8") == wanted:
        return folder
    print(f"== installing {name} into {folder}", file=sys.stderr, flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if "npm" in packages:
        _by_npm(folder, packages["npm"])
    else:
        _by_pip(folder, packages["pip"], packages.get("python", []))
    done.write_text(wanted, encoding="utf-8")
    return folder


def _by_pip(folder: Path, packages: list[str], versions: Sequence[str]) -> None:
    _do(_python(versions), "-m", "venv", str(folder))
    _do(str(folder / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check", *packages)


def _python(versions: Sequence[str]) -> str:
    """The Python that runs this, or else one of these versions: on the PATH, or among those of pyenv."""
    if not versions or platform.python_version().rpartition(".")[0] in versions:
        return sys.executable
    for version in versions:
        kept = sorted(PYENV.glob(f"{version}.*/bin/python"), key=lambda path: int(path.parts[-3].rpartition(".")[2]))
        for name in [f"python{version}", *map(str, reversed(kept))]:
            # One on the PATH may be a shim that only prints an error, so it is tried.
            with suppress(OSError):
                if subprocess.run([name, "-c", ""], capture_output=True, check=False).returncode == 0:
                    return name
    raise NotInstalled(f"it needs Python {' or '.join(versions)}, which is not here")


def _by_npm(folder: Path, packages: list[str]) -> None:
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            raise NotInstalled(f"{program} is not on the PATH")
    (folder / "package.json").write_text('{"private": true}\n', encoding="utf-8")
    _do("npm", "install", "--silent", "--no-fund", "--no-audit", "--save-exact", "--prefix", str(folder), *packages)


def _do(*command: str) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIME)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotInstalled(f"{Path(command[0]).name} failed: {error}") from error
    if done.returncode:
        said = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()][-1:]
        raise NotInstalled(f"{Path(command[0]).name} failed: {' '.join(said)}")
