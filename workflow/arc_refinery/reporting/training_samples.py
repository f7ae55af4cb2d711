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

N_SHOWN = 3  # completions of the step that the guard noticed, and of the first one after
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
    steps = _distinct(steps_of_rows)
    chosen = max(steps) if step is None else max((pair for pair in steps if pair[1] == step), default=None)
    if chosen is None:
        known = sorted({last for _, last in steps})
        raise InputError(
            f"--step is {step}, but {path} has completions for {len(known)} steps: {known[0]} to {known[-1]}; where a "
            "batch is for several steps, they belong to the first one"
        )
    samples = _read(path, steps_of_rows, chosen)
    ranked = _ranked(samples, worst)
    shown: dict[str, list[str]] = {}
    for sample, times in ranked[:number]:
        shown.setdefault(sample.name, []).append(_text(sample, times))
    prompts = _prompts(folder, shown)
    mean = sum(sample.reward for sample in samples) / len(samples)
    again = f" after rollback {chosen[0]}" if chosen[0] else ""
    which = f"the {min(number, len(ranked))} with the {'lowest' if worst else 'highest'} reward"
    head = (
        f"{folder}: step {chosen[1]}{again}, {len(samples)} completions, {len(ranked)} distinct, "
        f"mean reward {mean:.3g}; {which}"
    )
    texts = [text for name, below in shown.items() for text in (prompts.get(name, ""), *below) if text]
    return "\n\n".join([head, *texts])


def blocks(folder: Path, decisions: Sequence[Decision]) -> list[str]:
    """Return folded Markdown: the best and the worst completion of the last step, and some around each collapse."""
    path = folder / FILE
    if not path.is_file():
        return []
    steps_of_rows = _steps_of_rows(path)
    steps = _distinct(steps_of_rows)
    last = sorted(_read(path, steps_of_rows, max(steps)), key=lambda sample: sample.reward)
    parts = [
        f"Of step {max(steps)[1]}, the completion with the highest and with the lowest reward:",
        *map(_fenced, (last[-1], last[0])),
    ]
    for n_rollbacks, decision in enumerate(decisions):
        before = max((pair for pair in steps if pair[0] == n_rollbacks and pair[1] <= decision.step), default=None)
        after = min((pair for pair in steps if pair[0] == n_rollbacks + 1), default=None)
        for when, pair in (("At the collapse", before), ("After the rollback", after)):
            if pair:
                parts.append(f"{when}, in step {pair[1]}:")
                parts += map(_fenced, _read(path, steps_of_rows, pair)[:N_SHOWN])
    return [folded("What it wrote", *parts)]


def _steps_of_rows(path: Path) -> NDArray[np.int64]:
    """Return the step of each row as (rollbacks before, step): (rows, 2)."""
    table = records.columns(path, TrainingSample, ["n_rollbacks", "step"])
    return np.column_stack([table["n_rollbacks"], table["step"]])


def _distinct(steps_of_rows: NDArray[np.int64]) -> set[tuple[int, int]]:
    return {(n_rollbacks, step) for n_rollbacks, step in steps_of_rows.tolist()}


def _read(path: Path, steps_of_rows: NDArray[np.int64], step: tuple[int, int]) -> list[TrainingSample]:
    return list(records.read(path, TrainingSample, (steps_of_rows == step).all(axis=1)))


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
