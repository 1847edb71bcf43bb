"""The script by which programs in other languages send: it checks and encodes as Python does, and then runs `put_named`.

It is put together when it is asked for, and bide itself never runs it. A line `-- include: a b` stands for the files of
`scripts/foreign` with these names, and a line `-- run: a` for one of the scripts that bide runs.
"""

import functools
import re
from importlib.resources import files

from bide.engines.redis.script import scripts

_LINE = re.compile(r"^-- (include|run): (.+)\n", re.MULTILINE)


@functools.cache
def send_script() -> str:
    folder = files(__package__) / "scripts" / "foreign"

    def read(name: str) -> str:
        return (folder / f"{name}.lua").read_text(encoding="utf-8")

    def stands_for(line: re.Match[str]) -> str:
        kind, names = line[1], line[2].split()
        return "\n".join(read(name) if kind == "include" else scripts()[name].text for name in names)

    return _LINE.sub(stands_for, read("send"))
