"""Attempts and episodes as conversations, which trainers and evaluation tools of others read.

    {"messages": [{"role": "user", ...}, {"role": "assistant", ...}], "reward": 1.0, "task_id": "68b67ca3", ...}
    {"prompt": [{"role": "user", ...}], "completion": [{"role": "assistant", ...}], "reward": 1.0, ...}
    {"version": 2, "eval": {...}, "samples": [{"id": "68b67ca3", "epoch": 1, "scores": {"right": ...}, ...}, ...]}

The first form is chat data for supervised fine-tuning, in JSON lines, with attempts that arms or trainings share once;
the second one, TRL's conversational form of
prompts with completions, also has the keys that verifiers gives rollouts which it saves (`prompt`, `completion`,
`reward`). The third one is a log of inspect_ai (0.3.285) in JSON, with each attempt at a task as an epoch.
`arc-refinery compare` reads all of them.

Texts of supervised training are as the model reads them, special tokens included (TRL's standard form):

    {"prompt": "<|im_start|>user\\n...", "completion": "```python\\n...", "task_id": "68b67ca3", "turn": 2, ...}
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import takewhile
from pathlib import Path
from typing import Any, Literal, TypeAlias

from arc_refinery import config, records
from arc_refinery.errors import InputError
from arc_refinery.evaluation.attempts import TABLE
from arc_refinery.evaluation.sides import Side, sets_of
from arc_refinery.files import atomic_write
from arc_refinery.models.chat import Message
from arc_refinery.records import Demonstration
from arc_refinery.records.tool_use import Conversation
from arc_refinery.reporting.kind import reported

TEXTS: dict[str, Any] = {record.KIND: record for record in (Demonstration, Conversation)}

# Columns of the table of attempts, by their names in an export
ROW = {
    "task_id": "task_id",
    "repetition": "repetition",
    "turn": "turn",
    "parent_id": "refines",
    "status": "status",
    "score": "shown_score",
    "solved": "solved",
    "n_calls": "n_calls",
    "model": "model",
    "adapter": "adapter",
    "n_tokens": "n_tokens",
    "finish_reason": "finish_reason",
}

Form: TypeAlias = Literal["messages", "prompt-completion", "inspect"]


@dataclass(frozen=True, slots=True)
class Exported:
    """An attempt or an episode."""

    prompt: list[Message]  # up to the first message that the model wrote in this turn
    completion: list[Message]
    score: float  # 1: right on all checks
    row: dict[str, Any]  # further columns
    branch: str  # <set>/<branch or arm>: where it was sampled, once for all arms that have it

    def line(self, form: Form) -> dict[str, Any]:
        if form == "messages":
            return {"messages": [*self.prompt, *self.completion], "reward": self.score, **self.row}
        return {"prompt": self.prompt, "completion": self.completion, "reward": self.score, **self.row}

    def sample(self, epoch: int) -> dict[str, Any]:
        """A sample of a log of inspect_ai."""
        model, answer = self.row["model"], self.completion[-1]["content"]
        choice = {
            "message": {"role": "assistant", "content": answer},
            "stop_reason": "max_tokens" if self.row["finish_reason"] == "length" else "stop",
        }
        return {
            "id": self.row["task_id"],
            "epoch": epoch,
            "input": self.prompt,
            "target": "",
            "messages": [*self.prompt, *self.completion],
            "output": {"model": model, "choices": [choice], "completion": answer},
            "scores": {"right": {"value": self.score}},
            "metadata": self.row,
        }


def export(side: Side, sets: Sequence[str], form: Form, only_right: bool, output: Path) -> int:
    """Write the attempts or episodes of a side; return their number, which is not zero."""
    names = sets_of(side, sets)
    if form == "inspect" and only_right:
        raise InputError("--only-right: a log of inspect_ai has all attempts, for its scores; leave it out")
    if form == "inspect" and not side.arm and len(arms := side.experiment.repetitions) > 1:
        raise InputError(f"{side.folder}: a log of inspect_ai has one arm; name it: {side.folder}:{next(iter(arms))}")

    def rows() -> Iterator[Exported]:
        seen = set()  # arms and trainings share first turns: as messages, each attempt is there once
        for row in (row for name in names for row in exported(side, name) if row.score == 1.0 or not only_right):
            place = row.branch, row.row["id"]
            if form != "messages" or place not in seen:
                seen.add(place)
                yield row

    number = 0
    with atomic_write(output) as unfinished, unfinished.open("w") as file:
        lines = (f"{_json(row.line(form))}\n" for row in rows())
        for text in _inspect_log(side, names, rows) if form == "inspect" else lines:
            number += 1
            file.write(text)
        if not number:
            raise InputError(f"{side.folder}: nothing to write{': no attempt is right' if only_right else ''}")
    return number


def exported(side: Side, set_name: str) -> Iterator[Exported]:
    """Yield the attempts of a side's arms on a set, arm by arm and turn by turn; arms may share first turns."""
    experiment, of_kind = side.experiment, reported(side.experiment, side.folder)
    results = of_kind.results(set_name)
    for name in [side.arm] if side.arm else experiment.repetitions:
        for arm in experiment.arms_called(name):
            rows = results.attempts_of_arm(arm).set_index("attempt_id")[list(ROW)].rename(columns=ROW).to_dict("index")
            seed = experiment.training_seed(arm)
            run = str(experiment.seed if seed is None else seed)
            for turn in range(1, len(arm.turns) + 1):
                for attempt_id, texts in of_kind.texts(set_name, arm, turn):
                    if row := rows.get(attempt_id):
                        if (texts.n_tokens, texts.is_right) != (row["n_tokens"], row["solved"]):
                            raise InputError(
                                f"{side.folder / TABLE}: has {attempt_id} as it was before it was made again; run the "
                                "experiment to its end"
                            )
                        yield Exported(
                            prompt=texts.prompt,
                            completion=texts.completion,
                            score=float(row.pop("solved")),
                            branch=f"{set_name}/{arm.branch(turn)}",
                            row={"id": attempt_id, **row, "set": set_name, "arm": name, "run": run, **texts.more},
                        )


def export_training(side: Side, output: Path) -> int:
    """Write the texts of an experiment's supervised training; return their number."""
    wanted = config.part(side.experiment.kind, "inputs:sft_inputs")(side.experiment)["data"]
    paths = [side.folder / path.removeprefix("<results>/") for path in wanted]
    if missing := [path for path in paths if not path.is_file()] or ([] if paths else [side.folder / "training"]):
        raise InputError(f"{missing[0]}: does not exist; the experiment has no training.sft, or did not get so far")
    number = 0
    with atomic_write(output) as unfinished, unfinished.open("w") as file:
        for path in paths:
            for text in records.read(path, TEXTS.get(records.kind_of(path), Demonstration)):
                number += 1
                file.write(_json(_training_line(text)) + "\n")
    return number


def _training_line(text: Demonstration | Conversation) -> dict[str, Any]:
    if isinstance(text, Demonstration):
        row = asdict(text)
        return {"prompt": row.pop("text"), "completion": row.pop("completion"), **row}
    prompt = list(takewhile(lambda segment: not segment.is_sampled, text.segments))
    rest = text.segments[len(prompt) :]  # what the tools answered carries no loss
    return {
        "prompt": "".join(segment.text for segment in prompt),
        "completion": "".join(segment.text for segment in rest),
        "segments": [asdict(segment) for segment in rest],
        "task_id": text.question_id,
        "n_calls": text.n_calls,
    }


def _inspect_log(side: Side, sets: Sequence[str], rows: Callable[[], Iterator[Exported]]) -> Iterator[str]:
    """Yield a log of inspect_ai, in as many parts as it has samples; it reads what is before them without the rest."""
    experiment, settings = side.experiment, side.folder / "settings.json"
    scores = [row.score for row in rows()]
    mean = {"mean": {"name": "mean", "value": sum(scores) / max(len(scores), 1)}}
    log = {
        "version": 2,
        "status": "success",
        "eval": {
            "created": datetime.fromtimestamp(settings.stat().st_mtime, UTC).isoformat(),
            "task": f"{experiment.experiment}/{side.arm}" if side.arm else experiment.experiment,
            "dataset": {"name": ", ".join(sets)},
            "model": experiment.model.path,
            "config": {},
        },
        "plan": {},
        "results": {
            "total_samples": len(scores),
            "completed_samples": len(scores),
            "scores": [{"name": "right", "scorer": "right", "metrics": mean}],
        },
        "stats": {},
    }
    epochs = Counter[str]()
    before = f'{_json(log)[:-1]}, "samples": [\n'
    for number, row in enumerate(rows(), 1):
        task = row.row["task_id"]
        epochs[task] += 1
        yield before + _json(row.sample(epochs[task])) + (",\n" if number < len(scores) else "\n]}\n")
        before = ""


def _json(content: Any) -> str:
    return json.dumps(content, ensure_ascii=False)
