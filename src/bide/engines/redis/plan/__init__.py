"""What the scripts are told, and what their answers mean: pure. The head of each script is the other side."""

from typing import TypeAlias

Arg: TypeAlias = bytes | str | int
