"""The scripts that the server runs, one a verb."""

import functools
import hashlib
from collections.abc import Mapping
from typing import NamedTuple

from bide.engines import assets


class Script(NamedTuple):
    name: str
    text: str
    sha: str


@functools.cache
def scripts() -> Mapping[str, Script]:
    texts = assets.scripts("bide.engines.redis")
    return {
        name: Script(name, text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()) for name, text in texts.items()
    }
