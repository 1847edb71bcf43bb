"""Long histories of one place with two clients, judged by the model step by step: what only thousands of steps bring about.

`python -m bide.testing.long_history memory:// --seed 7 --shrink` plays one.
"""

from bide.testing.long_history.check import check_long_history
from bide.testing.long_history.history import Left, LongHistory

__all__ = ["Left", "LongHistory", "check_long_history"]
