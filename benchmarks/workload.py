"""Programs to measure the sandbox with: a seeded imitation of what a code model writes for ARC tasks.

    python benchmarks/workload.py    check a workload and print what its programs cost

Every program is a template of benchmarks/programs/<kind>/, written in the manner of a model trained on BARC, with
colours, directions, sizes and variable names filled in, and five input grids of the kind that the template is about.
The share of each kind is an assumption (`SHARES`), not a measurement of a model. The good programs do honest work of
their own, but they solve no ARC task, and nothing here grades whether an output is right.
"""

import argparse
import importlib
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from string import Template
from typing import Any

import numpy as np
from canvases import CANVASES, Grid, Rng

from arc_refinery.sandbox import Outcome, Program, Status

PROGRAMS = Path(__file__).parent / "programs"
N_INPUTS = 5
MAX_SIDE = 30
MAX_DRAWS = 1000  # programs drawn twice, before giving up on one more

Parameters = dict[str, str]


class Kind(StrEnum):
    """End of a program when it runs."""

    good = "good"  # a valid grid for each input
    error = "error"  # a Python exception, or something that is not a grid
    hang = "hang"  # an endless loop in Python
    c_hang = "c_hang"  # an endless call of a C function, which looks at no signals
    memory = "memory"  # more and more memory
    crash = "crash"  # ends its process


SHARES = {
    Kind.good: 0.85,
    Kind.error: 0.10,
    Kind.hang: 0.03,
    Kind.c_hang: 0.01,
    Kind.memory: 0.005,
    Kind.crash: 0.005,
}
BENIGN = (Kind.good, Kind.error)  # may run in any process
ALL_KINDS = tuple(Kind)


@dataclass(frozen=True, slots=True)
class Sample:
    """A program and what is to become of it."""

    kind: Kind
    program: Program


@dataclass(frozen=True, slots=True)
class _Draft:
    name: str
    canvas: str
    source: Template


def make(n: int, seed: int, kinds: Sequence[Kind] = ALL_KINDS) -> list[Sample]:
    """`n` different programs in random order: of each of these kinds its share, to the nearest whole number."""
    rng = np.random.default_rng(seed)
    samples: list[Sample] = []
    seen: set[str] = set()
    for kind, count in zip(kinds, _apportion(n, [SHARES[kind] for kind in kinds]), strict=True):
        drafts = _drafts(kind)
        for index in range(count):
            draft = drafts[index % len(drafts)]
            source, palette = _write(draft, rng, seen)
            inputs = tuple(CANVASES[draft.canvas](rng, palette) for _ in range(N_INPUTS))
            samples.append(Sample(kind, Program(f"{kind}/{draft.name}/{index}", source, inputs)))
    return [samples[index] for index in rng.permutation(len(samples))]


def _apportion(n: int, shares: Sequence[float]) -> list[int]:
    """`n` in whole parts; what rounding down leaves goes to the largest remainders."""
    exact = n * np.array(shares) / sum(shares)
    counts = exact.astype(int)
    for index in np.argsort(counts - exact, kind="stable")[: n - counts.sum()]:
        counts[index] += 1
    return [int(count) for count in counts]


@cache
def _drafts(kind: Kind) -> list[_Draft]:
    drafts = []
    for path in sorted((PROGRAMS / kind).glob("*.txt")):
        canvas, source = path.read_text().split("\n", 1)
        drafts.append(_Draft(path.stem, canvas.removeprefix("canvas: "), Template(source)))
    return drafts


def _write(draft: _Draft, rng: Rng, seen: set[str]) -> tuple[str, list[int]]:
    """A source that has not been seen, and its colours: those that it names come first."""
    for _ in range(MAX_DRAWS):
        palette = [int(color) for color in rng.permutation(np.arange(1, 10))]
        source = draft.source.substitute(_parameters(rng, palette))
        if source not in seen:
            seen.add(source)
            return source, palette
    raise ValueError(f"the template {draft.name} has no more variants")


COLOR_NAMES = ("black", "blue", "red", "green", "yellow", "grey", "pink", "orange", "teal", "maroon")


def _tied(names: str, *choices: str) -> list[Parameters]:
    """Place holders that are filled together; within a choice their values are separated by semicolons."""
    return [dict(zip(names.split(), choice.split("; "), strict=True)) for choice in choices]


# One of each list is drawn for each program.
CHOICES: tuple[list[Parameters], ...] = (
    _tied(
        "imports",
        "from common import *\n\nimport numpy as np\nfrom typing import *",
        "from common import *\n\nimport numpy as np",
        "import numpy as np\nfrom common import *",
        "from common import *",
    ),
    _tied(
        "grid signature",
        "grid; def transform(grid):",
        "input_grid; def transform(input_grid):",
        "grid; def transform(grid: np.ndarray) -> np.ndarray:",
        "input_grid; def transform(input_grid: np.ndarray) -> np.ndarray:",
    ),
    _tied("out", "output_grid", "output", "result", "new_grid"),
    _tied("n m", "n; m", "height; width", "rows; cols", "h; w"),
    _tied("x y", "x; y", "i; j", "r; c", "row; col"),
    _tied("obj objects", "obj; objects", "component; components", "shape; shapes", "region; regions"),
    _tied("conn", "4", "8"),
    _tied("k", "2", "3"),
    _tied("k2", "3", "4", "5", "6"),
    _tied("parity", "0", "1"),
    _tied("sign", "", "-"),
    _tied("dx dy fall_name", "1; 0; bottom", "-1; 0; top", "0; 1; right", "0; -1; left"),
    _tied("axis line_name order_name", "0; row; top to bottom", "1; column; left to right"),
    _tied("flag ascending_name", "False; ascending", "True; descending"),
    _tied("extreme largest", "max; largest", "min; smallest"),
    _tied("compare most larger", ">; most; larger", "<; least; smaller"),
    _tied("beats first_name", ">; first", ">=; last"),
    _tied("equal colored_name", "!=; colored", "==; black"),
    _tied("logic logic_name", "and; both halves are colored", "or; a half is colored", "!=; only one half is colored"),
    _tied("diagonal", "index", "count - 1 - index"),
    _tied("side_name", "left", "right"),
    _tied("edge_name", "left", "right", "upper", "lower"),
    _tied("flip", "np.flipud", "np.fliplr"),
    _tied("turn_corner corner_name", "np.copy; upper left", "np.flipud; lower left", "np.fliplr; upper right"),
    _tied(
        "turn turned_name",
        "np.flipud; flipped upside down",
        "np.fliplr; mirrored",
        "np.rot90; rotated counterclockwise",
        "np.transpose; transposed",
    ),
    _tied(
        "distance distance_name",
        "gap_x + gap_y; Manhattan",
        "max(gap_x, gap_y); chessboard",
        "gap_x ** 2 + gap_y ** 2; Euclidean",
    ),
    _tied(
        "neighbor_list neighborhood_name diagonal_name",
        "[(-1, 0), (1, 0), (0, -1), (0, 1)]; up, down, left and right; do not belong",
        "[(-1, -1), (-1, 0), (-1, 1), (0, -1), (0, 1), (1, -1), (1, 0), (1, 1)]; with diagonals; belong",
    ),
)


def _parameters(rng: Rng, palette: list[int]) -> Parameters:
    parameters: Parameters = {}
    for choices in CHOICES:
        parameters |= choices[rng.integers(len(choices))]
    by_name = rng.random() < 0.7  # BARC's programs write Color.RED, some others write 2
    for key, color in [("black", 0), *((f"c{index + 1}", color) for index, color in enumerate(palette[:4]))]:
        parameters[key] = f"Color.{COLOR_NAMES[color].upper()}" if by_name else str(color)
        parameters[f"{key}_name"] = COLOR_NAMES[color]
    return parameters


def provide_common() -> None:
    """Let programs that run in this process import `common`."""
    sys.modules["common"] = importlib.import_module("arc_refinery.barc.common")


class InvalidOutput(ValueError):
    """`transform` returned something that is not a grid."""


def run_in_process(program: Program) -> Outcome:
    """Run a program of a benign kind without any protection, to measure what that costs."""
    namespace: dict[str, Any] = {"__name__": "program"}
    try:
        exec(compile(program.source, "<program>", "exec", dont_inherit=True), namespace)
        transform = namespace["transform"]
        outputs = tuple(_as_grid(transform(grid.astype(np.int64))) for grid in program.inputs)
    except InvalidOutput as error:
        return Outcome(program.program_id, Status.invalid_output, (), "InvalidOutput", str(error))
    except Exception as error:  # noqa: BLE001 (whatever a program raises is its verdict)
        return Outcome(program.program_id, Status.error, (), type(error).__name__, str(error))
    return Outcome(program.program_id, Status.ok, outputs)


def _as_grid(value: Any) -> Grid:
    try:
        array = np.asarray(value)
    except ValueError:
        raise InvalidOutput("rows of different lengths") from None
    if array.ndim != 2 or not all(1 <= side <= MAX_SIDE for side in array.shape) or array.dtype.kind not in "buif":
        raise InvalidOutput(f"an array of {array.dtype} with shape {array.shape}")
    grid = array.astype(np.uint8)
    if (grid != array).any() or grid.max() > 9:
        raise InvalidOutput("a cell that is not a color")
    return grid


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=int, default=1000, help="how many, of all kinds (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the workload (default: %(default)s)")
    parser.add_argument("--templates", action="store_true", help="also print the median of each template")
    arguments = parser.parse_args()

    samples = make(arguments.programs, arguments.seed)
    print(", ".join(f"{count} {kind}" for kind, count in Counter(sample.kind for sample in samples).items()))
    provide_common()
    milliseconds: dict[str, list[float]] = defaultdict(list)
    unexpected = []
    for sample in samples:
        if sample.kind in BENIGN:
            start = time.process_time()
            outcome = run_in_process(sample.program)
            cost = 1000 * (time.process_time() - start)
            template = sample.program.program_id.rpartition("/")[0]
            for name in [sample.kind, template] if arguments.templates else [sample.kind]:
                milliseconds[name].append(cost)
            if (outcome.status is Status.ok) != (sample.kind is Kind.good):
                unexpected.append(f"{outcome.program_id} is {outcome.status}: {outcome.error}")
    for name, costs in sorted(milliseconds.items(), key=lambda item: float(np.median(item[1]))):
        p50, p90, p99 = np.percentile(costs, [50, 90, 99])
        print(f"{name:32} CPU ms in process: mean {np.mean(costs):.2f} p50 {p50:.2f}  p90 {p90:.2f}  p99 {p99:.2f}")
    lines = [sample.program.source.count("\n") for sample in samples]
    print("lines of source: p1 {:.0f}  p50 {:.0f}  p99 {:.0f}".format(*np.percentile(lines, [1, 50, 99])))
    if unexpected:
        sys.exit("\n".join(unexpected))


if __name__ == "__main__":
    main()
