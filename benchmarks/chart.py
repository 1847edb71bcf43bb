"""Lines over time as SVG, with what was wrong when, and alerts above."""

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

WIDTH, HEIGHT = 760, 300
LEFT, RIGHT, TOP, BOTTOM = 64, 12, 56, 28
ALERT = 16  # px of each
COLOURS = ("#1f77b4", "#d95f02", "#7570b3", "#1b9e77")
TICKS = 4
GAP = 8.0  # seconds without a point


class Line(NamedTuple):
    name: str
    points: Sequence[tuple[float, float]]  # seconds, and what was measured then


class Band(NamedTuple):
    name: str
    begin: float
    end: float


class Chart(NamedTuple):
    title: str
    lines: Sequence[Line]
    troubles: Sequence[Band]
    alerts: Sequence[Band] = ()

    def svg(self, seconds: float) -> str:
        """From 0 to so many seconds."""
        top = TOP + ALERT * len(self.alerts)
        height = HEIGHT + ALERT * len(self.alerts)
        most = _round_up(max((value for line in self.lines for _, value in line.points), default=1.0))

        def x(at: float) -> float:
            return LEFT + (WIDTH - LEFT - RIGHT) * min(max(at, 0.0), seconds) / seconds

        def y(value: float) -> float:
            return height - BOTTOM - (height - BOTTOM - top) * value / most

        parts = [f'<rect width="{WIDTH}" height="{height}" fill="white"/>', _text(12, 20, self.title, weight="bold")]
        for trouble in self.troubles:
            begin, end = x(trouble.begin), x(trouble.end)
            parts.append(_box(begin, top, end - begin, height - BOTTOM - top, "#f4e3e3"))
            parts.append(_text(begin + 4, top + 14, trouble.name, "#904040"))
        for place, alert in enumerate(self.alerts):
            begin, end, above = x(alert.begin), x(alert.end), TOP - 6 + ALERT * place
            parts.append(_box(begin, above, max(2.0, end - begin), ALERT - 4, "#c03030"))
            parts.append(_text(begin - 4, above + 10, alert.name, "#c03030", anchor="end"))
        for tick in range(TICKS + 1):
            value, at = most * tick / TICKS, seconds * tick / TICKS
            parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(value):.0f}" y2="{y(value):.0f}" stroke="#ddd"/>')
            parts.append(_text(LEFT - 6, y(value) + 4, f"{value:,.10g}", anchor="end"))
            parts.append(_text(x(at), height - 8, f"{at / 60:g} min", anchor="end" if tick == TICKS else "middle"))
        across = LEFT
        for line, colour in zip(self.lines, COLOURS, strict=False):
            for piece in _pieces(line.points):
                path = " ".join(f"{x(at):.1f},{y(value):.1f}" for at, value in piece)
                parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.8"/>')
            parts.append(_text(across, 38, line.name, colour, weight="bold"))
            across += 9 * len(line.name) + 16
        head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img"'
        return "\n".join((f'{head} aria-label="{escape(self.title)}">', *parts, "</svg>", ""))


def _pieces(points: Sequence[tuple[float, float]]) -> list[list[tuple[float, float]]]:
    """Where nothing was measured, there is no line."""
    found: list[list[tuple[float, float]]] = []
    for each in points:
        if not found or each[0] - found[-1][-1][0] > GAP:
            found.append([])
        found[-1].append(each)
    return found


def _box(x: float, y: float, width: float, height: float, colour: str) -> str:
    return f'<rect x="{x:.0f}" y="{y:.0f}" width="{width:.0f}" height="{height:.0f}" fill="{colour}"/>'


def _text(x: float, y: float, text: str, colour: str = "#333", *, anchor: str = "start", weight: str = "normal") -> str:
    style = f'font-family="sans-serif" font-size="12" fill="{colour}" text-anchor="{anchor}" font-weight="{weight}"'
    return f'<text x="{x:.0f}" y="{y:.0f}" {style}>{escape(text)}</text>'


def _round_up(value: float) -> float:
    """To 1, 2 or 5 with zeros."""
    step = 10.0 ** (len(str(int(max(value, 1.0)))) - 1)
    return next(step * each for each in (1, 2, 5, 10) if step * each >= value)
