"""Tool-use experiments whose every episode is a letter, so that metrics can be counted by eye.

R right without a call, w wrong without one, C right after a call, f wrong after a call that is not valid JSON, u right
after a call of an unknown tool and a good one, T cut, X out of tokens, L calls on with none left.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from checkout import TINY_TOOLS
from factories import correct_answer, make_episode, make_question

from arc_refinery import config, records
from arc_refinery.config import inputs
from arc_refinery.records.tool_use import Call, Episode, EpisodeMessage, Question
from arc_refinery.reporting.kind import reported
from arc_refinery.tool_use.config import ToolUse

GOOD, NO_JSON, UNKNOWN = Call("calculator", ""), Call("", "malformed"), Call("", "unknown_tool")
# calls, ending, reward, tokens written
LETTERS: dict[str, tuple[tuple[Call, ...], str, float, int]] = {
    "R": ((), "answer", 1.0, 10),
    "w": ((), "answer", 0.0, 10),
    "C": ((GOOD,), "answer", 1.0, 20),
    "f": ((NO_JSON,), "answer", 0.0, 30),
    "u": ((UNKNOWN, GOOD), "answer", 1.0, 40),
    "T": ((), "truncated", 0.0, 48),
    "X": ((GOOD,), "tokens", 0.0, 40),
    "L": ((GOOD, GOOD), "calls", 0.0, 60),
}
# four episodes per arm and question
ANSWERS = {
    "untrained": ("RRww", "wwwT", "RRRR", "CwwX"),
    "trained": ("RCCC", "CCuf", "CCCC", "uCLC"),
    "without-tools": ("wwwT", "wwww", "RRRw", "wwww"),
}
ARMS = [
    {"name": "untrained"},
    {"name": "trained", "adapter": "trained"},
    {"name": "without-tools", "adapter": "trained", "tools": False},
]
SETTINGS: dict[str, Any] = {
    "experiment": "by-hand",
    "kind": "tool-use",
    "model": {"path": TINY_TOOLS, "window": 512},
    "data": {
        "train": [{"name": "some", "domain": "gsm8k", "source": "generator", "n_tasks": 9}],
        "heldout": [{"name": "sums", "domain": "gsm8k", "source": "generator", "n_tasks": 4, "shards": 2}],
    },
    "generation": {"max_turn_tokens": 48, "max_episode_tokens": 160, "max_calls": 2},
    "training": {"grpo": {"learning_rate": 1e-3}},
    "evaluation": {"n_predictions": 4, "questions_per_batch": 1, "arms": ARMS},
}
QUESTIONS = [
    make_question(question_id=f"sums/{number}", text=f"How much is {number} + {number}?", reference=str(2 * number))
    for number in range(4)
]

Change = Callable[[Episode], Episode]


def episode(question: Question, number: int, letter: str) -> Episode:
    calls, ending, reward, n_tokens = LETTERS[letter]
    said = [
        message
        for call in calls
        for message in (EpisodeMessage("assistant", "a call"), EpisodeMessage("tool", call.fault or "2"))
    ]
    return make_episode(
        question,
        episode_id=f"{question.question_id}/{number:03d}",
        messages=(*said, EpisodeMessage("assistant", f"letter {letter}")),
        calls=calls,
        completion_ids=tuple(range(300, 308)),
        mask=(1, 1, 1, 0, 0, 0, 0, 1),
        ending=ending,
        n_tokens=n_tokens,
        answer=correct_answer(question) if reward else f"wrong {letter}" if ending == "answer" else "",
        reward=reward,
    )


def experiment(
    results: Path,
    change: Change = lambda episode: episode,
    questions: Sequence[Question] = QUESTIONS,
    settings: Mapping[str, Any] = SETTINGS,
    every_answer: Mapping[str, Sequence[str]] = ANSWERS,
) -> ToolUse:
    """The files of a finished experiment, in the folder `results`; its first batches are in shard 0, others in 1."""
    validated = config.validate_experiment(settings, "test", ToolUse)
    folder = results / validated.experiment
    records.write(folder / "questions/sums.parquet", Question, questions, 0, {})
    for arm, answers in every_answer.items():
        adapter = validated.adapter_of(arm)
        sampled: dict[str, Any] = {
            "model": inputs.model_path(validated),
            "adapter": f"{folder}/adapters/{adapter}" if adapter else "",
            "seed": validated.seed,
            "temperature": validated.generation.temperature,
            "top_p": validated.generation.top_p,
        }
        rollouts = [
            [change(replace(episode(question, number, letter), **sampled)) for number, letter in enumerate(letters)]
            for question, letters in zip(questions, answers, strict=True)
        ]
        for shard in (0, 1):
            rows = [sample for samples in rollouts[shard::2] for sample in samples]
            records.write(folder / f"sums/{arm}/{shard:03d}.parquet", Episode, rows, 0, {"arm": arm})
    (folder / "settings.json").write_text(json.dumps(validated.model_dump(mode="json", exclude={"resources"})))
    for adapter in validated.adapters:
        log = folder / "adapters" / adapter / "training.jsonl"
        log.parent.mkdir(parents=True)
        steps = [{"step": step, "reward": step / 4, "share/calling": 0.5, "calls": 1.0} for step in (1, 2, 3)]
        log.write_text("".join(json.dumps(step) + "\n" for step in steps))
    if validated.set_names == ["sums"]:
        reported(validated, folder).write_attempts()
    return validated
