"""Draw the pictures of README.md, light and dark: a program and its repair, and tasks solved against attempts.

The programs are those of docs/story.md, which run here. The curves are from the table of a sample report. Equal
inputs give equal bytes.
"""

import re
from dataclasses import dataclass
from html import escape
from pathlib import Path

import numpy as np
import pandas as pd

DOCS = Path(__file__).parents[1] / "docs"
CURVES = DOCS / "sample-report/results/seeds-demo/report/heldout-budget.csv"
N_TASKS = 300
WIDTH, HEIGHT = 400, 315

# the test input of the story's task, as the model saw it
INPUT = np.array([[2, 2, 0, 2, 0, 7, 0], [2, 2, 2, 2, 7, 0, 0], [0, 0, 0, 2, 7, 7, 0], [2, 0, 0, 2, 0, 7, 0]])
CELLS = {0: "#000000", 2: "#FF4136", 6: "#F012BE", 7: "#FF851B"}  # ARC's colors


@dataclass(frozen=True)
class Theme:
    text: str
    faint: str
    right: str
    wrong: str
    first: str
    refined: str


THEMES = {
    "light": Theme("#1f2328", "#818b98", "#1a7f37", "#cf222e", "#0072B2", "#D55E00"),
    "dark": Theme("#f0f6fc", "#7d8590", "#3fb950", "#ff7b72", "#56B4E9", "#E69F00"),
}
# arms, their labels, whether they refine, whether their line is solid
ARMS = {
    "independent": ("try again, untrained", False, False),
    "refine-trained-none": ("no results shown", True, False),
    "refine-trained": ("refine, trained", True, True),
    "independent-trained": ("try again, trained", False, True),
}


def text(x: float, y: float, content: str, color: str, *attributes: str) -> str:
    words = " ".join(("", *attributes))
    return f'<text x="{x:g}" y="{y:g}" fill="{color}"{words}>{escape(content)}</text>'


def grid(
    cells: np.ndarray, x: float, y: float, theme: Theme, side: float, expected: np.ndarray | None = None
) -> list[str]:
    """Cells of a grid, and a cross on each that is not as expected."""
    drawn = []
    for (row, column), value in np.ndenumerate(cells):
        left, top = x + column * side, y + row * side
        drawn.append(
            f'<rect x="{left:g}" y="{top:g}" width="{side:g}" height="{side:g}" fill="{CELLS[int(value)]}" '
            f'stroke="{theme.faint}" stroke-width="0.7"/>'
        )
        if expected is not None and value != expected[row, column]:
            middle = f'x="{left + side / 2:g}" y="{top + side / 2 + 4.5:g}" text-anchor="middle"'
            drawn.append(f'<text {middle} font-size="13" font-weight="bold" fill="#ffffff">×</text>')
    return drawn


def story_programs() -> tuple[str, str]:
    first, second = re.findall(r"```python\n(.*?)```", (DOCS / "story.md").read_text(), re.DOTALL)
    return first, second


def output(program: str) -> np.ndarray:
    namespace = {"np": np}
    exec(program.replace("from common import *", ""), namespace)  # the story's own two programs
    transform = namespace["transform"]
    return np.asarray(transform(INPUT))  # type: ignore[operator]


def repair(theme: Theme) -> list[str]:
    """One task: its input, the first program and its output, the second program and its output."""
    programs = story_programs()
    expected = output(programs[1])
    side = 13.0
    drawn = [
        text(8, 16, "One puzzle: find the rule, as a program", theme.text, 'font-weight="bold"'),
        text(8, 36, "input", theme.faint),
        *grid(INPUT, 8, 43, theme, side),
        text(125, 74, "→", theme.faint, 'font-size="16"'),
        text(160, 36, "wanted", theme.faint),
        *grid(expected, 160, 43, theme, side),
    ]
    titles = (("first program: wrong", theme.wrong), ("second program: right", theme.right))
    for program, (title, color), top in zip(programs, titles, (120, 238), strict=True):
        made = output(program)
        drawn.append(text(8, top, title, color, 'font-weight="bold"'))
        lines = [
            "# a, b: the left and the right half",
            *(line.strip() for line in program.splitlines() if line.strip().startswith("grid =")),
        ]
        for number, line in enumerate(lines):
            ink = color if "hstack" in line else theme.text if number else theme.faint
            drawn.append(text(8, top + 20 + 17 * number, line, ink, 'font-family="monospace" font-size="11"'))
        drawn += grid(made, 312, top - 4, theme, side, expected)
    drawn += [
        text(8, 207, "↓", theme.faint, 'font-size="20"'),
        text(30, 205, "its outputs, beside the wanted ones, are the next prompt", theme.text),
    ]
    return drawn


def curves(table: pd.DataFrame, theme: Theme) -> list[str]:
    """One line per arm, tasks solved against attempts: the mean over its trainings and samplings, and their range."""
    left, top, right, bottom = 34, 46, 244, 285
    highest, longest = 220, int(table["budget"].max())
    table = table.assign(arm=table["arm"].str.replace(r"-(seed|sampling)-\d+", "", regex=True))

    def x(budget: float) -> float:
        return round(left + (right - left) * budget / longest, 1)

    def y(solved: float) -> float:
        return round(bottom - (bottom - top) * solved / highest, 1)

    drawn = [
        text(8, 16, f"Tasks solved, of {N_TASKS} that training did not have", theme.text, 'font-weight="bold"'),
        text(
            8,
            34,
            "against attempts per task; “refine” starts after 64",
            theme.faint,
            'font-size="11.5"',
        ),
    ]
    for solved in (0, 50, 100, 150, 200):
        drawn.append(
            f'<line x1="{left}" y1="{y(solved)}" x2="{right}" y2="{y(solved)}" stroke="{theme.faint}" '
            'stroke-width="0.5" opacity="0.5"/>'
        )
        drawn.append(text(left - 5, y(solved) + 4, str(solved), theme.faint, 'text-anchor="end" font-size="11"'))
    for budget in (1, 32, 64, 96, 128):
        drawn.append(text(x(budget), bottom + 17, str(budget), theme.faint, 'text-anchor="middle" font-size="11"'))
    ends = []
    for arm, (label, refines, is_solid) in ARMS.items():
        runs = table[table["arm"] == arm].groupby("budget")["solved_tasks"]
        color = theme.refined if refines else theme.first
        if runs.size().max() > 1:
            edge = [f"{x(b)},{y(v)}" for b, v in runs.max().items()]
            edge += [f"{x(b)},{y(v)}" for b, v in reversed(list(runs.min().items()))]
            drawn.append(f'<polygon points="{" ".join(edge)}" fill="{color}" opacity="0.25"/>')
        points = " ".join(f"{x(b)},{y(v)}" for b, v in runs.mean().items())
        dashes = "" if is_solid else ' stroke-dasharray="5 3"'
        drawn.append(f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="2"{dashes}/>')
        ends.append((y(runs.mean().iloc[-1]), f"{label} {runs.mean().iloc[-1]:.0f}", color))
    last = -np.inf
    for height, label, color in sorted(ends):  # labels do not overlap
        last = max(height, last + 15)
        drawn.append(text(right + 5, round(last + 4, 1), label, color, 'font-size="12"'))
    return drawn


def svg(drawn: list[str]) -> str:
    font = 'font-family="-apple-system, \'Segoe UI\', Helvetica, Arial, sans-serif" font-size="12.5"'
    size = f'viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} {font}>'
    return "\n".join((head, *drawn, "</svg>\n"))


def pictures() -> dict[str, str]:
    """Return the texts of all pictures by their names."""
    table = pd.read_csv(CURVES)
    return {
        f"{name}-{shade}.svg": svg(drawn)
        for shade, theme in THEMES.items()
        for name, drawn in (("repair", repair(theme)), ("curves", curves(table, theme)))
    }


if __name__ == "__main__":
    for name, content in pictures().items():
        (DOCS / "pictures" / name).write_text(content)
