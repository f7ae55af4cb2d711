"""Time of sampling and training as it was measured, beside the count of `doctor cost`.

    | sampled | jobs | completions | prompt | tokens each | tokens per second | job s | counted for an H100 80 GB |
    | heldout: turn1 | 8 | 51,200 | 1,930 | 342 | 3,100 | 5,648 | 4,370 |

A job's seconds are those of Snakemake's benchmark files, its start included. A training logs its own seconds and memory
(`*.measured.jsonl`).
"""

from pathlib import Path

import pandas as pd
import pyarrow as pa

from arc_refinery import records
from arc_refinery.config import Experiment
from arc_refinery.config.experiment import PlannedSampling
from arc_refinery.doctor.cost import HOUR, Assumed, sampling_cost, step_seconds
from arc_refinery.errors import InputError
from arc_refinery.records import Attempt
from arc_refinery.records.tool_use import Episode
from arc_refinery.reporting.markdown import markdown_table
from arc_refinery.reporting.times import read_benchmark
from arc_refinery.rows import read_rows
from arc_refinery.sampling.gpu_memory import steps
from arc_refinery.sampling.gpu_time import Gpu

PARTS = ("sampling", "reward", "update")


def measured_page(experiment: Experiment, results: Path, logs: Path, gpu: Gpu | None) -> str:
    """Return tables of sampling and training; `results` and `logs` are the experiment's folders."""
    counted = f"counted for an {gpu.name}" if gpu else ""
    sampled = [row for planned in experiment.planned_sampling if (row := _sampled(planned, results, logs, gpu))]
    trained = _trained(experiment, logs, gpu)
    if not sampled and not trained:
        raise InputError(f"{results}: holds no attempts, and {logs}/adapters no measured training: run it first")
    header = ["sampled", "jobs", "completions", "prompt", "tokens each", "tokens per second", "job s"]
    blocks = []
    if sampled:
        blocks += ["## Sampling", markdown_table([*header, *filter(None, [counted])], sampled)]
    if trained:
        header = ["training", "steps", "s per step", *PARTS, "GPU memory, MB", "memory, MB"]
        blocks += ["## Training", markdown_table([*header, *filter(None, [f"s {counted}" if gpu else ""])], trained)]
    return "\n\n".join([*blocks, _CAPTION, *([_COUNTED] if gpu else [])]) + "\n"


_CAPTION = """\
Prompts and completions: means in tokens. Jobs that shared a GPU or cores count in full, each with its start. A step's
parts are means over steps; GPU memory is the most that PyTorch held in the trainer's process, with vLLM's if it runs
there."""
_COUNTED = """\
Counted: sampling for the lengths of this run, a training's step for those that `doctor cost` assumes; both with vLLM in
bfloat16 and a GPU for each job."""


def _sampled(planned: PlannedSampling, results: Path, logs: Path, gpu: Gpu | None) -> list[object]:
    """Return a row of the table; none if the stage was not sampled here."""
    files = planned.shards(results)
    times = [path for kind in ("sample", "episodes") for path in logs.glob(f"benchmarks/{planned.folder}/{kind}-*.tsv")]
    if not files or not times:
        return []
    record = Attempt if files[0].parent.name == "attempts" else Episode
    tables = [records.columns(path, record, ["n_prompt_tokens", "n_tokens"]) for path in files]
    rows = pa.concat_tables(tables).to_pandas()
    if rows.empty:  # nothing was left to refine
        return []
    took = sum(read_benchmark(path)["s"].sum() for path in times)
    prompt, answer = rows["n_prompt_tokens"].mean(), rows["n_tokens"].mean()
    row = [planned.stage, len(times), f"{len(rows):,}", f"{prompt:,.0f}", f"{answer:,.0f}"]
    row += [f"{rows['n_tokens'].sum() / took:,.0f}", f"{took:,.0f}"]
    if gpu is None:
        return row
    n_tasks = max(1, len(rows) // planned.n_completions)
    try:
        cost = sampling_cost(planned, n_tasks, gpu, Assumed(max(1, round(prompt)), max(1, round(answer))))
    except InputError:  # its weights do not fit this card
        return [*row, "–"]
    return [*row, f"{(cost.hours or 0) * HOUR / planned.model.tensor_parallel_size:,.0f}"]  # seconds of jobs


def _trained(experiment: Experiment, logs: Path, gpu: Gpu | None) -> list[list[object]]:
    rows: list[list[object]] = []
    counted = {step.job: step_seconds(step, gpu) for step in steps(experiment)} if gpu else {}
    for adapter in experiment.adapters:
        path = logs / f"adapters/{adapter}.measured.jsonl"
        if not path.is_file():
            continue
        lines = [line for line in read_rows(path) if isinstance(line, dict)]
        log = pd.DataFrame(lines).apply(pd.to_numeric, errors="coerce")
        if (step := "seconds/step") not in log:
            raise InputError(f"{path}: has no {step}; expected the log of a training's seconds and memory")
        parts = [f"seconds/{part}" for part in ("step", *PARTS)]  # supervised fine-tuning has none
        means = [f"{log[name].mean():.1f}" if name in log else "–" for name in parts]
        memory = [f"{log[name].max():,.0f}" if name in log else "–" for name in ("gpu_mb", "trainer_mb")]
        of_step = counted.get("sft" if adapter in experiment.sft_adapters else f"train {adapter}")
        counts = [f"{of_step:.1f}" if of_step else "–"] if gpu else []
        rows.append([adapter, len(log), *means, *memory, *counts])
    return rows
