"""Experiments of domain `code` whose every answer is a letter: what it gives can be counted by eye.

S passes all tests, T the shown ones only, w returns None, v a text, e raises, x is no Python, t never ends, n has no
program. `stand_in` makes a program `arc-refinery` that samples these answers where a model would; all else is real.
"""

import json
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import processes
from checkout import ROOT

from arc_refinery.sampling.backends import Request, Sample, Sampled

ROWS: dict[str, dict[str, Any]] = {
    "double": {
        "prompt": "Double a number.",
        "tests": ["assert double(2) == 4"],
        "hidden_tests": ["assert double(5) == 10"],
        "reference": "def double(n):\n    return 2 * n",
    },
    "largest": {
        "prompt": "Return the largest number.",
        "tests": ["assert largest([1, 3]) == 3", "assert largest([0]) == 0"],
        "hidden_tests": ["assert largest([7, 2]) == 7", "assert largest([-2]) == -2"],
        "reference": "def largest(xs):\n    return max(xs)",
    },
    "parity": {
        "prompt": "Tell whether a number is odd.",
        "tests": ["assert parity(3) is True"],
        "hidden_tests": ["assert parity(8) is False"],
        "reference": "def parity(n):\n    return n % 2 == 1",
    },
    "mirror": {
        "prompt": "Reverse a text.",
        "tests": ["assert mirror('ab') == 'ba'"],
        "hidden_tests": ["assert mirror('') == ''"],
        "reference": "def mirror(text):\n    return text[::-1]",
    },
    "add": {
        "prompt": "Add two numbers.",
        "tests": ["assert add(1, 2) == 3"],
        "hidden_tests": ["assert add(4, 4) == 8"],
        "reference": "def add(a, b):\n    return a + b",
    },
}
TO_TRAIN_ON: dict[str, dict[str, Any]] = {
    "negate": {
        "prompt": "Negate a number.",
        "tests": ["assert negate(1) == -1", "assert negate(-4) == 4"],
        "reference": "def negate(n):\n    return -n",
    },
    "length": {"prompt": "Count the letters of a text.", "tests": ["assert length('abc') == 3"]},
}
UNUSABLE: dict[str, dict[str, Any]] = {
    "empty": {"prompt": "Do nothing.", "tests": []},
    "wrong": {"prompt": "Halve it.", "tests": ["assert half(2) == 1"], "reference": "def half(n):\n    return n"},
    "again": {"prompt": "Triple it.", "tests": ["assert triple(1) == 3"], "hidden_tests": ["assert triple(1) == 3"]},
}
SHOWN_ONLY = {
    "double": "def double(n):\n    return 4",
    "largest": "def largest(xs):\n    return max(xs) if len(xs) == 2 and xs[0] < xs[1] or xs == [0] else None",
    "parity": "def parity(n):\n    return True",
    "mirror": "def mirror(text):\n    return 'ba'",
    "add": "def add(a, b):\n    return 3",
}
# Letters of all attempts of a branch at a task; two share a prompt
ANSWERS = {
    "turn1": {
        "double": "wvewwwwS",
        "largest": "Twvnwwww",
        "parity": "xxnetwww",
        "mirror": "SSwwwwww",
        "add": "wwwwSwww",
    },
    "refine-turn2": {"double": "wSww", "largest": "SSww", "parity": "wwww", "mirror": "wwwS", "add": "wwww"},
    "trained-turn2": {"double": "SSww", "largest": "SSww", "parity": "Swww", "mirror": "SSSS", "add": "wwww"},
    "blind-turn2": {"double": "wwww", "largest": "wTww", "parity": "xxxx", "mirror": "Swww", "add": "wwww"},
    "fresh-turn2": {"double": "nnnn", "largest": "wwww", "parity": "wwww", "mirror": "wwww", "add": "wwww"},
    "twin-turn2": {"double": "wwww", "largest": "wwww", "parity": "wwww"},
}


def write_rows(path: Path, names: Sequence[str]) -> None:
    rows = ROWS | TO_TRAIN_ON | UNUSABLE
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps({"task_id": name, **rows[name]}) + "\n" for name in names))


def settings(training_rows: str, rows: str, venv: str) -> dict[str, Any]:
    """A config that trains on some rows and evaluates others; `venv`: a `stand_in`. Training alone needs the model."""
    turn = {"n_predictions": 4}
    return {
        "experiment": "programs",
        "domain": "code",
        "model": {"path": "workflow/models/tiny-tools", "window": 512, "n_threads": 1},
        "problems": {"source": "file", "path": training_rows},
        "parts": {"n_parts": 1},
        "sampling": {"n_predictions": 4, "batch_size": 2, "max_output_tokens": 48},
        "training": {
            "max_completion_length": 48,
            "max_seq_length": 512,
            "grpo": {
                "learning_rate": 1.0e-4,
                "num_generations": 4,
                "prompts_per_step": 1,
                "gradient_accumulation_steps": 1,
                "max_steps": 2,
                "save_steps": 1,
                "n_heldout": 0,
            },
        },
        "evaluation": {
            "sets": [{"name": "test", "path": rows}],
            "arms": [
                {"name": "independent", "turns": [{"n_predictions": 8}]},
                {"name": "refine", "turns": [turn, turn]},
                {"name": "blind", "turns": [turn, turn | {"feedback": "none"}]},
                {"name": "twin", "turns": [turn, turn | {"feedback": "twin"}]},
                {"name": "fresh", "turns": [turn, turn | {"feedback": "fresh"}]},
                {"name": "trained", "turns": [turn, turn | {"adapter": "trained"}]},
            ],
            "comparisons": [["trained", "refine"], ["refine", "blind"]],
            "primary": {"set": "test", "arms": ["trained", "refine"], "turn": 2},
        },
        "resources": {"sample": {"venv": venv}},
    }


def answer(task_id: str, letter: str) -> str:
    programs = {
        "S": (ROWS | TO_TRAIN_ON).get(task_id, {}).get("reference", ""),
        "T": SHOWN_ONLY.get(task_id, ""),
        "w": f"def {task_id}(*inputs):\n    return None",
        "v": f"def {task_id}(*inputs):\n    return 'no'",
        "e": f"def {task_id}(*inputs):\n    raise ValueError('bad')",
        "x": f"def {task_id}(:",
        "t": f"def {task_id}(*inputs):\n    while True: pass",
    }
    return f"```python\n{programs[letter]}\n```" if letter in programs else "I do not know."


def answers_to(prompt_id: str, n: int) -> list[str]:
    """The answers to a prompt such as `double/refine-turn2-001`, the second of this branch at its task."""
    task_id, _, name = prompt_id.partition("/")
    branch, _, number = name.rpartition("-")
    letters = ANSWERS.get(branch, {}).get(task_id, "wvex")
    return [answer(task_id, letter) for letter in letters[2 * int(number) :][:n]]


class Sampler:
    """A backend that gives the answers."""

    def __init__(self, _model: Any, _adapter: Any, _decoding: Any, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.ends = frozenset([tokenizer.eos_token_id])

    def sample(self, requests: Sequence[Request]) -> Iterator[Sampled]:
        for request in requests:
            time.sleep(seconds_per_prompt)
            texts = answers_to(request.request_id, request.n)
            ids = [[*self.tokenizer(text)["input_ids"], self.tokenizer.eos_token_id] for text in texts]
            yield {request.request_id: [Sample(tokens, "stop", -1.0) for tokens in ids]}


seconds_per_prompt = 0.0


def stand_in(folder: Path, seconds: float = 0.0) -> str:
    """Make an environment whose `arc-refinery` samples the answers, a prompt in so many seconds; return its path."""
    (folder / "bin").mkdir(parents=True, exist_ok=True)
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT / 'tests')!r}); import handmade_programs as handmade; "
        f"handmade.seconds_per_prompt = {seconds}; "
        "from arc_refinery.config import BACKENDS; usual = BACKENDS['transformers']; "
        "BACKENDS['transformers'] = usual._replace(sampler='handmade_programs:Sampler'); "
        "from arc_refinery.cli import main; main()"
    )
    processes.server().write_client(folder / "bin/arc-refinery", [sys.executable, "-c", code])
    return str(folder)
