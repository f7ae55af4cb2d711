"""Attempts and episodes as JSON lines with conversations, which trainers and evaluation tools of others read.

    {"messages": [{"role": "user", ...}, {"role": "assistant", ...}], "reward": 1.0, "task_id": "68b67ca3", ...}
    {"prompt": [{"role": "user", ...}], "completion": [{"role": "assistant", ...}], "reward": 1.0, ...}

The first form is chat data for supervised fine-tuning; the second one, TRL's conversational form of prompts with
completions, also has the keys that verifiers gives rollouts which it saves (`prompt`, `completion`, `reward`).
`arc-refinery compare` reads both.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Literal, TypeAlias

from arc_refinery import config
from arc_refinery.errors import InputError
from arc_refinery.evaluation.sides import Side, sets_of
from arc_refinery.files import atomic_write
from arc_refinery.models.chat import Message

Form: TypeAlias = Literal["messages", "prompt-completion"]


@dataclass(frozen=True, slots=True)
class Exported:
    """An attempt or an episode."""

    prompt: list[Message]  # up to the first message that the model wrote in this turn
    completion: list[Message]
    score: float  # 1: right on all checks
    row: dict[str, Any]  # further columns

    def line(self, form: Form) -> dict[str, Any]:
        if form == "messages":
            return {"messages": [*self.prompt, *self.completion], "reward": self.score, **self.row}
        return {"prompt": self.prompt, "completion": self.completion, "reward": self.score, **self.row}


def export(side: Side[Any], sets: Sequence[str], form: Form, only_right: bool, output: Path) -> int:
    """Write the attempts or episodes of a side; return their number, which is not zero."""
    rows_of = config.part(side.experiment.kind, "report:exported")
    rows: Iterator[Exported] = chain.from_iterable(rows_of(side, name) for name in sets_of(side, sets))
    number = 0
    with atomic_write(output) as unfinished, unfinished.open("w") as file:
        for row in rows:
            if row.score == 1.0 or not only_right:
                file.write(json.dumps(row.line(form), ensure_ascii=False) + "\n")
                number += 1
        if not number:
            raise InputError(f"{side.folder}: nothing to write{': no attempt is right' if only_right else ''}")
    return number
