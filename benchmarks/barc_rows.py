"""BARC rows by the hundred thousand: turned into tasks, and only read with pandas, as a Markdown table.

    python benchmarks/barc_rows.py --rows 200000

The rows are made here, from a seed, in the form of the heavy set: most have ten pairs, some up to thirty, of grids of
up to 30x30. Each program runs in a process of its own; start and imports count. Peak memory is that of the process that
is started; each of the stage's other processes took no more.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

SOURCE = """from common import *

import numpy as np
from typing import *

# concepts:
# {concepts}

# description:
# In the input you will see a grid of {height}x{width} cells with shapes of {color} on a black background.
# Move every shape by {steps} cells, leave the others in place, and draw a frame around what touches the border.

def main(input_grid):
    output_grid = np.copy(input_grid)
    background = Color.BLACK
    objects = find_connected_components(input_grid, monochromatic=True, background=background, connectivity=4)
    for number, obj in enumerate(objects):
        x, y, width, height = bounding_box(obj, background=background)
        sprite = crop(obj, background=background)
        if np.any(sprite == Color.{color}):
            output_grid = blit_sprite(output_grid, sprite, x=x + {steps}, y=y, background=background)
    return output_grid

def generate_input():
    grid = np.zeros(({height}, {width}), dtype=int)
    for _ in range({steps}):
        sprite = random_sprite(3, 3, color_palette=[Color.{color}], background=Color.BLACK)
        x, y = random_free_location_for_sprite(grid, sprite, background=Color.BLACK, padding=1)
        grid = blit_sprite(grid, sprite, x=x, y=y, background=Color.BLACK)
    return grid
"""
COLORS = ("RED", "BLUE", "GREEN", "YELLOW", "GRAY")
PROGRAM = [sys.executable, "-c", "from arc_refinery.cli import main; main()"]
PANDAS = [sys.executable, "-c", "import pandas, sys; print(len(pandas.read_json(sys.argv[1], lines=True)))"]


def lines(n_rows: int, seed: int) -> Iterator[str]:
    """One BARC row a line, as JSON."""
    rng = np.random.default_rng(seed)
    for _ in range(n_rows):
        n_pairs = 10 if rng.random() < 0.8 else int(rng.integers(11, 31))
        height, width = (int(side) for side in rng.triangular(2, 4, 31, size=2))
        words = {"color": rng.choice(COLORS), "steps": rng.integers(1, 9), "concepts": "objects – translation"}
        source = SOURCE.format(height=height, width=width, **words)
        seeds = [f"{number:08x}.py" for number in rng.integers(2**32, size=4).tolist()]
        examples = _examples((n_pairs, 2, height, width), rng)
        yield f'{{"source": {json.dumps(source)}, "examples": {examples}, "seeds": {json.dumps(seeds)}}}\n'


def _examples(shape: tuple[int, ...], rng: np.random.Generator) -> str:
    """Nested lists of cells, three quarters of them black."""
    text = "0"
    for length in reversed(shape):
        text = f"[{', '.join([text] * length)}]"
    characters = np.frombuffer(text.encode(), np.uint8).copy()
    is_cell = characters == ord("0")
    n_cells = np.count_nonzero(is_cell)
    characters[is_cell] += rng.integers(1, 10, n_cells, np.uint8) * (rng.random(n_cells) < 0.25)
    return characters.tobytes().decode()


def measure(command: list[str]) -> tuple[float, float, float]:
    """Seconds of wall time and of CPU time, and GiB of memory at most, of one process."""
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
    return time.perf_counter() - start, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 2**20


def split(rows: str, tasks_per_part: int | None) -> list[str]:
    problems = {"source": "file", "path": rows}
    settings = {"problems": problems, "tasks_per_part": tasks_per_part, "sandbox": {}, "seed": 0}
    return [*PROGRAM, "stage", "tasks", json.dumps(settings)]


def compare(folder: Path, n_rows: int, seed: int) -> None:
    rows, tasks = str(folder / "rows.jsonl"), str(folder / "tasks.parquet")
    with open(rows, "w") as file:
        file.writelines(lines(n_rows, seed))
    size = os.path.getsize(rows) / 2**30
    print(f"{n_rows} rows, {size:.2f} GiB; {os.cpu_count()} cores, Python {platform.python_version()}\n")
    n_jobs = str(os.cpu_count())
    commands = {
        "pandas.read_json": [*PANDAS, rows],
        "tasks, all in one part": [*split(rows, None), "--n-jobs", n_jobs, "--output", tasks],
        "the same, one process": [*split(rows, None), "--output", tasks],
        "tasks, a tenth in two parts": [
            *split(rows, n_rows // 20),
            "--n-jobs",
            n_jobs,
            "--output",
            tasks,
            f"{tasks}.2",
        ],
    }
    print("| program | wall s | peak GiB | wall of pandas / wall |")
    print("|---|--:|--:|--:|")
    first = 0.0
    for name, command in commands.items():
        wall, _, memory = measure(command)
        first = first or wall
        print(f"| {name} | {wall:.1f} | {memory:.2f} | {first / wall:.1f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--rows", type=int, default=20000, help="rows of the file (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the rows (default: %(default)s)")
    parser.add_argument("--folder", type=Path, help="where temporary files go (default: the system's place for them)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        compare(Path(folder), arguments.rows, arguments.seed)


if __name__ == "__main__":
    main()
