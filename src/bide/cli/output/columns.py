"""Columns that stay aligned from page to page: cut to the terminal's width on a terminal, whole anywhere else."""

import shutil
import sys
from collections.abc import Container, Sequence

from bide.cli.output.out import is_terminal, say, say_styled
from bide.cli.output.safe import escaped

GAP = "  "
SHORT = 40  # characters that a terminal is given of a cell in a column that may be cut
LEAST = 16  # cells that the last column has, however narrow the terminal is


class Columns:
    """Those in `right` are for numbers. On a terminal those in `short` are cut, and the last takes what room is left.

    `whole`: nothing is cut.
    """

    def __init__(self, *headings: str, right: Container[str] = (), short: Container[str] = (), whole: bool = False) -> None:
        self._headings = headings
        self._right = [heading in right for heading in headings]
        self._short = [heading in short for heading in headings]
        self._widths = [len(heading) for heading in headings]
        self._begun = False
        self._room = shutil.get_terminal_size().columns if is_terminal(sys.stdout) and not whole else None

    def add(self, rows: Sequence[Sequence[str]], styles: Sequence[str] = ()) -> None:
        """Print a page of rows, each in a style of its own if there are any."""
        from rich.cells import cell_len

        shown = [self._cells(row) for row in rows]
        for row in shown:
            self._widths = [max(width, cell_len(cell)) for width, cell in zip(self._widths, row, strict=True)]
        if not self._begun and any(self._headings):
            say_styled(self._line(self._headings), "bold")
        self._begun = True
        for place, row in enumerate(shown):
            say_styled(self._line(row), styles[place] if styles else "")

    def _cells(self, row: Sequence[str]) -> list[str]:
        cells = [escaped(cell) for cell in row]
        if self._room is None:
            return cells
        may_cut = zip(cells, self._short, strict=True)
        return [cell[: SHORT - 1] + "…" if short and len(cell) > SHORT else cell for cell, short in may_cut]

    def _line(self, cells: Sequence[str]) -> str:
        from rich.cells import cell_len, chop_cells

        *first, last = cells
        widths = self._widths[:-1]
        begin = ""
        for cell, width, right in zip(first, widths, self._right, strict=False):
            pad = " " * (width - cell_len(cell))
            begin += (pad + cell if right else cell + pad) + GAP
        if self._room is not None:
            room = max(LEAST, self._room - sum(widths) - len(GAP) * len(widths))
            if cell_len(last) > room:
                last = chop_cells(last[: room + 1], room - 1)[0] + "…"
        return (begin + last).rstrip()


def say_pairs(pairs: Sequence[tuple[str, str]]) -> None:
    """Names and what they have, one a line, nothing cut."""
    widest = max(len(name) for name, _ in pairs)
    for name, value in pairs:
        say(f"{name:<{widest}}{GAP}{value}".rstrip())
