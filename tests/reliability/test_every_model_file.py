"""Every file of a model's and of an adapter's folder, with every mistake: refused by name, or the same samples."""

import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from adapters import make_adapter
from checkout import TINY
from experiments import words_of
from factories import make_prompt
from reliability.sweep import ANY, Corrupt, command_of, ending_of, json_faults

from arc_refinery import records
from arc_refinery.domains.arc.records import Attempt, Prompt

TEXT = "<|user|>\ninput 1x2\n1 10\noutput 1x2\n1 01<|assistant|>"
# Other settings, but possible ones: no check can know which of them the weights were made with
POSSIBLE = {
    "config.json": ["attention_dropout a number", "rms_norm_eps a number", "rope_parameters missing",
                    "rope_parameters null", "rope_parameters an object"],
    "tokenizer.json": ["added_tokens a list", "decoder missing", "decoder null"],
    "model.safetensors": ["whole numbers"],  # as quantized models have them
    "adapter_config.json": ["lora_alpha a number", "target_modules missing", "target_modules null",
                            *(f"use_rslora {what}" for what in ("missing", "null", "a list", "an object"))],
}  # fmt: skip

Weights = dict[str, Any]


def changed_weights(change: Callable[[Weights], Weights]) -> Corrupt:
    def corrupt(path: Path) -> None:
        from safetensors.torch import load_file, save_file

        save_file(change(load_file(path)), path, {"format": "pt"})

    return corrupt


def first(weights: Weights, change: Callable[[Any], Any]) -> Weights:
    name = min(weights)
    return weights | {name: change(weights[name]).contiguous()}


def one_infinite(matrix: Any) -> Any:
    matrix[0, 0] = float("inf")
    return matrix


WEIGHTS: dict[str, Corrupt] = {
    "not a number": changed_weights(partial(first, change=lambda matrix: matrix * float("nan"))),
    "one infinite": changed_weights(partial(first, change=one_infinite)),
    "of another shape": changed_weights(partial(first, change=lambda matrix: matrix[:-1])),
    "whole numbers": changed_weights(lambda weights: {name: tensor.char() for name, tensor in weights.items()}),
    "one missing": changed_weights(lambda weights: {name: weights[name] for name in sorted(weights)[1:]}),
    "other names": changed_weights(lambda weights: {name.replace("model", "m"): weights[name] for name in weights}),
    "none": changed_weights(lambda _: {}),
}


def mistakes(path: Path) -> dict[str, Corrupt]:
    match path.suffix:
        case ".json":
            # two mistakes per key, in turn: libraries read most keys, and their errors all reach the same code of ours
            keys, kinds = json.loads(path.read_text()), ("missing", "null", "a number", "a text", "a list", "an object")
            others = {f"{key} {kind}" for i, key in enumerate(keys) for j, kind in enumerate(kinds) if (i - j) % 3}
            return json_faults([[key] for key in keys], valid=others)
        case ".safetensors":
            return ANY | WEIGHTS
        case _:
            return ANY


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    records.write(folder / "prompts.parquet", Prompt, [make_prompt(text=TEXT, n_tokens=30, n_predictions=2)], 0, {})
    shutil.copytree(TINY, folder / "model")
    make_adapter(folder / "adapter", TINY)
    return folder


def sampled(folder: Path, prompts: Path) -> tuple[str | None, list[tuple[str, float]]]:
    """Return how sampling with a model or an adapter is refused, or its completions."""
    output = folder.parent / "out/000.parquet"
    shutil.rmtree(output.parent, ignore_errors=True)
    model = folder if folder.name == "model" else TINY
    settings = {
        "model": {"path": str(model), "window": 256, "backend": "transformers", "dtype": "float32"},
        "sampling": {"max_output_tokens": 6},
    }
    adapter = folder if folder.name == "adapter" else None
    words = words_of("sample", settings, prompts=prompts, adapter=adapter, output=output)
    refusal, _ = ending_of(command_of(words))
    if refusal:
        return refusal, []
    return None, [(attempt.completion, attempt.logprob) for attempt in records.read(output, Attempt)]


@pytest.mark.model
@pytest.mark.slow
@pytest.mark.parametrize("name", ["model", "adapter"])
def test_every_mistake_in_every_file(name: str, whole: Path, tmp_path: Path) -> None:
    folder, prompts = tmp_path / name, whole / "prompts.parquet"
    shutil.copytree(whole / name, folder)
    nothing, wanted = sampled(folder, prompts)
    assert nothing is None and len(wanted) == 2
    possible, wrong = [], []
    for file in sorted(path.name for path in folder.iterdir()):
        for what, corrupt in mistakes(folder / file).items():
            corrupt(folder / file)
            refusal, completions = sampled(folder, prompts)
            if refusal is None and completions != wanted:
                possible.append((file, what))
            elif refusal and ("Traceback" in refusal or not (file in refusal or str(folder) in refusal)):
                wrong.append(f"{file}, {what}: {refusal:.300}")
            shutil.rmtree(folder)
            shutil.copytree(whole / name, folder)
    assert wrong == []
    assert set(possible) <= {(file, what) for file, several in POSSIBLE.items() for what in several}
