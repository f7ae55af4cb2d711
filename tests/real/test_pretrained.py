"""A pretrained model goes through refining code and ARC, GRPO, and tool use, by both samplers.

    ARC_REFINERY_REAL_MODEL=<folder of SmolLM2-135M-Instruct or another> pytest tests/real

Any instruction-tuned model with a chat template will do; the figures of a good one are not expected.
"""

import json
import os
from pathlib import Path
from typing import Any

import pandas as pd
import processes
import pytest
import torch
import vllm_cpu
import yaml
from checkout import ROOT, Checkout
from experiments import words_of
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

from arc_refinery import records
from arc_refinery.errors import InputError
from arc_refinery.records import Attempt
from arc_refinery.tool_use.config import Generation
from arc_refinery.tool_use.episodes.rendering import check_folder
from arc_refinery.training.log import read_lines

MODEL = os.environ.get("ARC_REFINERY_REAL_MODEL", "")

pytestmark = [
    pytest.mark.real,
    pytest.mark.snakemake,
    pytest.mark.training,
    pytest.mark.skipif(
        not MODEL, reason="ARC_REFINERY_REAL_MODEL is not set: the folder of a pretrained model with a chat template"
    ),
]

ROWS = [
    {"prompt": "Write a function double(x) that returns two times x.", "tests": ["assert double(2) == 4"]},
    {"prompt": "Write a function last(items) that returns the last item.", "tests": ["assert last([1, 2]) == 2"]},
    {
        "prompt": "Write a function initials(name): 'Ada Lovelace' gives 'AL'.",
        "tests": ["assert initials('A B') == 'AB'"],
    },
    {"prompt": "Write a function depth(tree) of nested lists.", "tests": ["assert depth([[], [[]]]) == 3"]},
]
HIDDEN = {
    "double": "assert double(-3) == -6",
    "last": "assert last('abc') == 'c'",
    "initials": "assert initials('Ada Lovelace') == 'AL'",
    "depth": "assert depth([]) == 1",
}
GRPO = {
    "rewards": [{"reward": "staged"}],
    "learning_rate": 1.0e-4,
    "num_generations": 4,
    "prompts_per_step": 1,
    "gradient_accumulation_steps": 1,
    "max_steps": 2,
    "save_steps": 2,
    "n_heldout": 1,
}
CODE: dict[str, Any] = {
    "experiment": "code",
    "domain": "code",
    "model": {"path": MODEL, "window": 1024},
    "problems": {"source": "file", "path": "results/rows.jsonl"},
    "parts": {"n_parts": 1},
    "sampling": {"n_predictions": 4, "batch_size": 4, "tasks_per_batch": 4, "max_output_tokens": 96},
    "training": {
        "max_completion_length": 48,
        "max_seq_length": 768,
        "lora": {"lora_r": 4},
        "grpo": GRPO,
    },
    "evaluation": {
        "sets": [{"name": "mine", "path": "results/rows.jsonl", "n_tasks": 2}],
        "arms": [
            {"name": "independent", "turns": [{"n_predictions": 8}]},
            {"name": "trained", "turns": [{"n_predictions": 4}, {"n_predictions": 4, "adapter": "trained"}]},
        ],
    },
}
TOOLS: dict[str, Any] = {
    "kind": "tool-use",
    "experiment": "tools",
    "model": {"path": MODEL, "window": 2048},
    "data": {"heldout": [{"name": "sums", "domain": "gsm8k", "source": "file", "path": "results/sums.jsonl"}]},
    "tools": ["calculator"],
    "generation": {"max_turn_tokens": 64, "max_episode_tokens": 256, "max_calls": 2, "temperature": 0.7},
    "evaluation": {"n_predictions": 2, "arms": [{"name": "untrained"}, {"name": "without", "tools": False}]},
}


@pytest.fixture(scope="module")
def checkout(pristine: Checkout, tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    checkout = pristine.clone(tmp_path_factory.mktemp("real") / "checkout")
    results = checkout.folder / "results"
    results.mkdir(exist_ok=True)
    rows = [row | {"hidden_tests": [HIDDEN[row["tests"][0].split()[1].partition("(")[0]]]} for row in ROWS]
    sums = [{"question": f"What is {n} plus 17?", "answer": f"#### {n + 17}"} for n in (5, 28, 140)]
    for name, lines in (("rows", rows), ("sums", sums)):
        (results / f"{name}.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return checkout


def run(checkout: Checkout, config: dict[str, Any]) -> Path:
    """Run an experiment to its report; return its folder of results."""
    path = checkout.folder / f"results/{config['experiment']}.yaml"
    path.write_text(yaml.safe_dump(config))
    done = checkout.snakemake("--cores", "1", "--configfile", str(path))
    assert done.returncode == 0, done.stdout + done.stderr
    return path.with_suffix("")


@pytest.fixture(scope="module")
def code(checkout: Checkout) -> Path:
    return run(checkout, CODE)


def attempts_of(folder: Path) -> list[Attempt]:
    return list(records.read(folder / "000.parquet", Attempt))


def test_second_turns_of_code_are_sampled_graded_and_trained_on(code: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    prompts = list(records.read(code / "mine/trained-turn2/prompts.parquet", records.Prompt))
    for prompt in prompts:
        assert prompt.text == tokenizer.apply_chat_template(prompt.messages, tokenize=False, add_generation_prompt=True)
        assert [message["role"] for message in prompt.messages] == ["user", "assistant", "user"]
        assert not any(hidden in prompt.text for hidden in HIDDEN.values())
    assert len({attempt.completion for attempt in attempts_of(code / "mine/turn1/attempts")}) > 1
    lines = read_lines(code / "adapters/trained/training.jsonl")
    assert len([line for line in lines if isinstance(line, dict) and "reward" in line]) == 2
    report = code.with_suffix(".md").read_text()
    assert "| `trained` | 2 |" in report


def greedy(network: Any, tokenizer: Any, text: str, n_tokens: int) -> str:
    ids = tokenizer(text, return_tensors="pt", add_special_tokens=False)
    written = network.generate(
        **ids, do_sample=False, max_new_tokens=n_tokens, top_p=None, top_k=None, temperature=None
    )
    return str(tokenizer.decode(written[0, ids["input_ids"].shape[1] :], skip_special_tokens=True))


def sampled(code: Path, output: Path, adapter: Path | None, backend: str) -> list[str]:
    """A greedy completion of each of the first turn's prompts."""
    settings = {
        "domain": "code",
        "model": {"path": MODEL, "backend": backend, "window": 1024, "dtype": "float32"},
        "sampling": {"max_output_tokens": 24, "temperature": 0},
    }
    files = {"prompts": code / "mine/turn1/prompts.parquet", "adapter": adapter, "output": output / "000.parquet"}
    words = ["arc-refinery", *words_of("sample", settings, **files)]
    done = vllm_cpu.run(words) if backend == "vllm" else processes.run(words, ROOT)
    assert done.returncode == 0, done.stderr[-3000:]
    return [attempt.completion for attempt in attempts_of(output) if attempt.attempt_id.endswith("/000")]


@pytest.mark.parametrize("is_trained", [False, True], ids=["model alone", "with its adapter"])
def test_greedy_completions_are_those_of_the_library(code: Path, tmp_path: Path, is_trained: bool) -> None:
    """The adapter is loaded from a folder of its own, by its library."""
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    network = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32)
    adapter = code / "adapters/trained" if is_trained else None
    if adapter:
        network = PeftModel.from_pretrained(network, adapter)
    prompts = list(records.read(code / "mine/turn1/prompts.parquet", records.Prompt))
    expected = [greedy(network, tokenizer, prompt.text, 24) for prompt in prompts]
    assert sampled(code, tmp_path, adapter, "transformers") == expected


@vllm_cpu.needs_vllm
def test_both_samplers_write_the_same(code: Path, tmp_path: Path) -> None:
    ours, theirs = (sampled(code, tmp_path / name, None, name) for name in ("transformers", "vllm"))
    assert theirs == ours


def test_arc_in_plain_words(checkout: Checkout) -> None:
    config = yaml.safe_load((ROOT / "examples/own-model.yaml").read_text())
    config["model"] |= {"path": MODEL, "n_threads": 1}
    config["sampling"]["max_output_tokens"] = 64
    folder = run(checkout, config)
    assert folder.with_suffix(".html").exists()


def test_episodes_with_a_calculator(checkout: Checkout) -> None:
    try:
        check_folder(Path(MODEL), Generation(**TOOLS["generation"]))
    except InputError as reason:
        pytest.skip(str(reason))
    folder = run(checkout, TOOLS)
    for arm in ("untrained", "without"):
        episodes = pd.read_parquet(folder / f"sums/{arm}/000.parquet")
        assert len(episodes) == 3 * 2
        for messages in episodes["messages"]:
            assert messages[-1]["role"] == "assistant"
    assert "| `untrained` |" in folder.with_suffix(".md").read_text()
