"""Completions that a training sampled, as text: the distinct ones of a step, the best or the worst first.

results/demo/adapters/trained: step 40, 128 completions, 61 distinct, mean reward 0.06; the 1 with the highest reward

=== 1a2b/training-000 ===
<|user|>
[...]

--- 1a2b/training-000: reward 1 (solved 1), advantage 2.81, ok, 24 tokens, 5 times ---
from common import *
[...]
"""

from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from arc_refinery import records
from arc_refinery.errors import InputError
from arc_refinery.records import Prompt, Question
from arc_refinery.reporting.markdown import fenced, folded
from arc_refinery.training.log import Decision
from arc_refinery.training.samples import FILE, TrainingSample

N_SHOWN = 3  # completions of the step that the guard noticed
MAX_LINES = 40  # of a completion in a report
# In the results of an experiment: what its trainings answer
PROMPTS = {"*/training/prompts.parquet": (Prompt, "prompt_id"), "questions/*.parquet": (Question, "question_id")}


def show(folder: Path, step: int | None, number: int, worst: bool) -> str:
    """Return distinct completions of a step, by default the last one, below their prompts; raises `InputError`."""
    path = folder / FILE
    if not path.is_file():
        raise InputError(
            f"{path}: no such file. Give the folder of an adapter that GRPO has trained, "
            "results/demo/adapters/trained; of a training in parts (trained@1000), the last part has the samples of all"
        )
    steps_of_rows = _steps_of_rows(path)
    steps = sorted(set(steps_of_rows.tolist()))
    shown_step = steps[-1] if step is None else step
    if shown_step not in steps:
        raise InputError(
            f"--step is {step}, but {path} has completions for {len(steps)} steps: {steps[0]} to {steps[-1]}; where a "
            "batch is for several steps, they belong to the first one"
        )
    samples = _read(path, steps_of_rows, shown_step)
    ranked = _ranked(samples, worst)
    shown: dict[str, list[str]] = {}
    for sample, times in ranked[:number]:
        shown.setdefault(sample.name, []).append(_text(sample, times))
    prompts = _prompts(folder, shown)
    mean = sum(sample.reward for sample in samples) / len(samples)
    which = f"the {min(number, len(ranked))} with the {'lowest' if worst else 'highest'} reward"
    head = (
        f"{folder}: step {shown_step}, {len(samples)} completions, {len(ranked)} distinct, "
        f"mean reward {mean:.3g}; {which}"
    )
    texts = [text for name, below in shown.items() for text in (prompts.get(name, ""), *below) if text]
    return "\n\n".join([head, *texts])


def blocks(folder: Path, decisions: Sequence[Decision]) -> list[str]:
    """Return folded Markdown: the best and the worst completion of the last step, and some of each collapse."""
    path = folder / FILE
    if not path.is_file():
        return []
    steps_of_rows = _steps_of_rows(path)
    steps = sorted(set(steps_of_rows.tolist()))
    last = sorted(_read(path, steps_of_rows, steps[-1]), key=lambda sample: sample.reward)
    parts = [
        f"Of step {steps[-1]}, the completion with the highest and with the lowest reward:",
        *map(_fenced, (last[-1], last[0])),
    ]
    for decision in decisions:
        if collapsed := [step for step in steps if step <= decision.step]:
            parts.append(f"At the collapse, in step {collapsed[-1]}:")
            parts += map(_fenced, _read(path, steps_of_rows, collapsed[-1])[:N_SHOWN])
    return [folded("What it wrote", *parts)]


def _steps_of_rows(path: Path) -> NDArray[np.int64]:
    """Return the step of each row."""
    return np.asarray(records.columns(path, TrainingSample, ["step"])["step"])


def _read(path: Path, steps_of_rows: NDArray[np.int64], step: int) -> list[TrainingSample]:
    return list(records.read(path, TrainingSample, steps_of_rows == step))


def _ranked(samples: Sequence[TrainingSample], worst: bool) -> list[tuple[TrainingSample, int]]:
    """Return distinct completions, the best or the worst first, and how often each occurs.

    Of equal rewards, every prompt has one before any has two.
    """
    equal: dict[tuple[str, str], list[TrainingSample]] = {}
    for sample in samples:
        equal.setdefault((sample.name, _body(sample)), []).append(sample)
    ranks, n_before = [], Counter[tuple[str, float]]()
    for first, *_ in equal.values():
        ranks.append((first.reward if worst else -first.reward, n_before[first.name, first.reward]))
        n_before[first.name, first.reward] += 1
    order = sorted(zip(ranks, equal.values(), strict=True), key=lambda entry: entry[0])
    return [(alike[0], len(alike)) for _, alike in order]


def _prompts(folder: Path, names: Collection[str]) -> dict[str, str]:
    """Return the prompts and questions, by id, that are in the results around an adapter."""
    texts = {}
    for pattern, (cls, column) in PROMPTS.items():
        for path in sorted(folder.resolve().parent.parent.glob(pattern)):
            for row in records.columns(path, cls, [column, "text"], names).to_pylist():
                texts[row[column]] = f"=== {row[column]} ===\n{row['text'].strip()}"
    return texts


def _title(sample: TrainingSample) -> str:
    terms = ", ".join(f"{value.term} {value.value:.3g}" for value in sample.terms)
    facts = [
        f"reward {sample.reward:.3g} ({terms})",
        f"advantage {', '.join(f'{value:.3g}' for value in sample.advantages)}",
    ]
    facts += [sample.status] * bool(sample.status) + ["truncated"] * sample.is_truncated
    facts.append(f"{sum(span.n_tokens for span in sample.spans if span.is_sampled)} tokens")
    return f"{sample.name}: {', '.join(facts)}"


def _body(sample: TrainingSample) -> str:
    """Return the turns of the model, and what came between them as `[...]`."""
    return "\n".join(span.text if span.is_sampled else f"[{span.text}]" for span in sample.spans)


def _text(sample: TrainingSample, times: int) -> str:
    return f"--- {_title(sample)}{f', {times} times' if times > 1 else ''} ---\n{_body(sample)}"


def _fenced(sample: TrainingSample) -> str:
    return f"{_title(sample)}\n\n{fenced(_body(sample), 'text', MAX_LINES)}"
