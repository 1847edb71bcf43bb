"""Tables whose columns stay aligned from page to page: cut to the terminal's width, or complete if there is none."""

import shutil
import sys
from collections.abc import Container, Mapping, Sequence

from bide.cli.output import echo_styled, escaped, is_terminal

GAP = "  "
SHORT = 40  # characters that a terminal is given of a cell in a column that may be cut
LEAST = 16  # cells that the last column has, however narrow the terminal is
ROOMY = 100  # columns of a terminal that shows all there is


class Table:
    """A table that prints its rows page by page.

    Columns in `right` are aligned to the right. On a terminal, cells of columns in `short` are cut, columns in `spare` are
    left out if the terminal is narrow, and the last column is cut to the room that is left. `whole`: nothing is cut.
    """

    def __init__(
        self,
        *columns: str,
        right: Container[str] = (),
        short: Container[str] = (),
        spare: Container[str] = (),
        whole: bool = False,
    ) -> None:
        self._room = shutil.get_terminal_size().columns if is_terminal(sys.stdout) and not whole else None
        narrow = self._room is not None and self._room < ROOMY
        self._kept = [index for index, heading in enumerate(columns) if not (narrow and heading in spare)]
        headings = [columns[index] for index in self._kept]
        self._headings = headings
        self._right = [heading in right for heading in headings]
        self._short = [heading in short for heading in headings]
        self._widths = [len(heading) for heading in headings]
        self._begun = False

    def add(self, rows: Sequence[Sequence[str]], styles: Sequence[str] = ()) -> None:
        """Print a page of rows, each in its style."""
        from rich.cells import cell_len

        shown = [self._cells(row) for row in rows]
        for row in shown:
            self._widths = [max(width, cell_len(cell)) for width, cell in zip(self._widths, row, strict=True)]
        if not self._begun and any(self._headings):
            echo_styled(self._line(self._headings), "bold")
        self._begun = True
        for index, row in enumerate(shown):
            echo_styled(self._line(row), styles[index] if styles else "")

    def _cells(self, row: Sequence[str]) -> list[str]:
        cells = [escaped(row[index]) for index in self._kept]
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


def echo_pairs(pairs: Sequence[tuple[str, str]], styles: Mapping[str, str] | None = None) -> None:
    """Print names with their values, one per line, complete. `styles` has the styles of some names."""
    widest = max(len(name) for name, _ in pairs)
    for name, value in pairs:
        echo_styled(f"{name:<{widest}}{GAP}{value}".rstrip(), (styles or {}).get(name, ""))
