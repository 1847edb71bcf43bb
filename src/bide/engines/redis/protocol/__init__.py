"""What the scripts are asked, and what they answer: pure. The head of each script is the other side."""

from typing import TypeAlias

Text: TypeAlias = bytes | str
Arg: TypeAlias = Text | int
