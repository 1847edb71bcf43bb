"""Rows as lines that are no wider than a screen: columns that matter less are left out, and names are cut."""

from collections.abc import Sequence

from bide.cli.output import escaped
from bide.cli.watch.cells import RIGHT

GAP = "  "
NAME = 16  # cells of the first column, before another column is left out for it
LONGEST = 40  # cells of any other column
SPARE = ("attempt", "next due", "message", "dead", "change", "of", "scheduled", "overdue", "longest", "leased", "runs")


def fitted(rows: Sequence[Sequence[str]], columns: int) -> list[str]:
    """The first row is the headings. The first column has what room the others leave."""
    from rich.cells import cell_len, set_cell_size

    headings, found = rows[0], [[escaped(cell) for cell in row] for row in rows]
    widths = [min(LONGEST, max(cell_len(row[place]) for row in found)) for place in range(len(headings))]
    kept = list(range(1, len(headings)))
    least = min(NAME, widths[0])
    for spare in SPARE:
        if _wide(widths, kept) + least <= columns:
            break
        kept = [place for place in kept if headings[place] != spare]
    widths[0] = max(1, min(widths[0], columns - _wide(widths, kept)))
    lines = []
    for row in found:
        line = _cut(row[0], widths[0])
        line = set_cell_size(line, widths[0])
        for place in kept:
            cell = _cut(row[place], widths[place])
            pad = " " * (widths[place] - cell_len(cell))
            line += GAP + (pad + cell if headings[place] in RIGHT else cell + pad)
        lines.append(line.rstrip())
    return lines


def _wide(widths: Sequence[int], kept: Sequence[int]) -> int:
    """Cells of the columns that are kept, beside the first."""
    return sum(widths[place] + len(GAP) for place in kept)


def _cut(cell: str, width: int) -> str:
    from rich.cells import cell_len, set_cell_size

    return cell if cell_len(cell) <= width else set_cell_size(cell, width - 1) + "…"
