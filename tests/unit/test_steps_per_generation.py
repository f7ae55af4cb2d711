"""Completions of several steps sampled at once: what each step learns from, and against which probabilities."""

import json
import os
import signal
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from checkout import TINY, contents
from letter_environment import Letters
from processes import disk_states
from transformers import AutoModelForCausalLM

from arc_refinery.config import Guard, Lora, ModelConfig, PolicyGradient, Sandbox
from arc_refinery.errors import InputError
from arc_refinery.training import grpo
from arc_refinery.training.grpo import train_grpo
from arc_refinery.training.job import TrainingJob
from arc_refinery.training.trainer import Trainer

pytestmark = [pytest.mark.training, pytest.mark.usefixtures("on_a_cpu")]

WORDS = [f"word {number}" for number in range(9)]  # two batches of two steps with two prompts each; one is left over


def settings(**changes: Any) -> PolicyGradient:
    values: dict[str, Any] = {"learning_rate": 1e-2, "warmup_ratio": 0, "max_grad_norm": 1, "beta": 0, "report_to": ()}
    values |= {"num_generations": 4, "prompts_per_step": 2, "gradient_accumulation_steps": 4, "repetition_penalty": 1}
    return PolicyGradient.model_validate(
        values | {"top_p": 1, "save_steps": 2, "steps_per_generation": 2, "mask_truncated_completions": False} | changes
    )


def train(folder: Path, training: PolicyGradient, words: list[str], **optional: Any) -> list[dict[str, Any]]:
    model = ModelConfig(path=TINY, window=256)
    guard, lora = Guard(action="none"), Lora(lora_r=4, lora_alpha=16)
    places: dict[str, Any] = {"output": folder / "adapter", "work": folder / "work", "measurements": None}
    places |= {"start": None, "tensorboard": folder / "tensorboard"}
    job = TrainingJob(model, lora, training, guard, Sandbox(), seed=0, **places, **optional)
    train_grpo(job, Letters(words, training, 0))
    lines = [json.loads(line) for line in (folder / "adapter/training.jsonl").read_text().splitlines()]
    return [line for line in lines if "step" in line]


def alone(adapter: dict[str, torch.Tensor], scale: float, row: list[int], n_completion: int) -> torch.Tensor:
    """Log-probabilities of the last tokens of a row, by the base model with the adapter added to its matrices."""
    network = AutoModelForCausalLM.from_pretrained(TINY, dtype=torch.float32)
    weights = network.state_dict()  # these are the network's own tensors
    for name, a in adapter.items():
        if name.endswith("lora_A.default.weight"):
            matrix = name.removeprefix("base_model.model.").replace("lora_A.default.", "")
            weights[matrix] += scale * adapter[name.replace("lora_A", "lora_B")] @ a
    ids = torch.tensor([row])
    with torch.no_grad():
        log_probs: torch.Tensor = network(ids).logits[0, :-1].log_softmax(-1).gather(1, ids[0, 1:, None])[:, 0]
    return log_probs[-n_completion:]


@pytest.mark.parametrize("shared", ["auto", "off"])
def test_each_step_learns_from_its_own_prompts_against_the_weights_that_sampled(
    shared: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    sampled_with: list[dict[str, torch.Tensor]] = []
    passes: list[tuple[int, dict[str, Any]]] = []
    current: list[torch.Tensor] = []  # log-probabilities by the weights that each pass updates
    generate, compute_loss = Trainer._generate_and_score_completions, Trainer._compute_loss
    score = Trainer._get_per_token_logps_and_entropies

    def generated(trainer: Any, inputs: Any) -> Any:
        weights = {name: parameter.detach() for name, parameter in trainer.model.named_parameters() if "lora" in name}
        sampled_with.append(deepcopy(weights))
        return generate(trainer, inputs)

    def computed(trainer: Any, model: Any, inputs: Any) -> Any:
        passes.append((trainer.state.global_step, inputs))
        return compute_loss(trainer, model, inputs)

    def scored(trainer: Any, *arguments: Any, **named: Any) -> Any:
        logprobs = score(trainer, *arguments, **named)
        if torch.is_grad_enabled():
            current.append(logprobs[0].detach())
        return logprobs

    monkeypatch.setattr(Trainer, "_get_per_token_logps_and_entropies", scored)
    monkeypatch.setattr(Trainer, "_generate_and_score_completions", generated)
    monkeypatch.setattr(Trainer, "_compute_loss", computed)
    lines = train(tmp_path, settings(shared_prefix=shared), WORDS)

    assert [line["step"] for line in lines] == [1, 2, 3, 4]
    assert len(sampled_with) == 2 and len(passes) == 16
    rewards = [line["reward"] for line in lines]
    assert rewards[0] == rewards[1] != rewards[2] == rewards[3]
    assert all("share/zero_variance" in line and "loss" in line for line in lines)
    prompts = [{tuple(row) for row in arguments["prompt_ids"].tolist()} for _, arguments in passes]
    step_prompts = [set().union(*prompts[4 * step : 4 * step + 4]) for step in range(4)]
    assert [len(both) for both in step_prompts] == [2] * 4 and len(set().union(*step_prompts)) == 8
    assert all(len(prompt) == 1 for prompt in prompts), "a pass has half of a group"
    assert [step for step, _ in passes] == [step for step in range(4) for _ in range(4)]
    for (step, arguments), now in zip(passes, current, strict=True):
        mask, old = arguments["completion_mask"].bool(), arguments["old_per_token_logps"]
        is_first = step % 2 == 0
        assert torch.allclose(old[mask], now[mask], atol=1e-5) == is_first, "only there the ratio is 1"
        n_prompt, n_tokens = int(arguments["prompt_mask"][0].sum()), int(mask[0].sum())
        row = arguments["prompt_ids"][0, -n_prompt:].tolist() + arguments["completion_ids"][0, :n_tokens].tolist()
        expected = alone(sampled_with[step // 2], 16 / 4**0.5, row, n_tokens)
        torch.testing.assert_close(old[0, :n_tokens], expected, atol=2e-4, rtol=0)


class TerminatedError(Exception):
    pass


def test_a_signal_in_a_batch_waits_for_its_last_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    training = settings(save_steps=4)
    undisturbed = train(tmp_path / "undisturbed", training, WORDS)
    compute_loss = Trainer._compute_loss

    def terminated(trainer: Any, model: Any, inputs: Any) -> Any:
        if trainer.state.global_step == 1:  # in the second of the two steps
            os.kill(os.getpid(), signal.SIGTERM)
        return compute_loss(trainer, model, inputs)

    def end(*_: Any) -> None:
        raise TerminatedError

    before = signal.signal(signal.SIGTERM, end)
    with monkeypatch.context() as patch, pytest.raises(TerminatedError):
        patch.setattr(Trainer, "_compute_loss", terminated)
        train(tmp_path / "terminated", training, WORDS)
    signal.signal(signal.SIGTERM, before)
    assert [path.name for path in (tmp_path / "terminated/work").glob("checkpoint-*")] == ["checkpoint-2"]
    assert train(tmp_path / "terminated", training, WORDS) == undisturbed


@pytest.mark.slow
def test_killed_at_any_write_it_ends_with_the_same_bytes(tmp_path: Path):
    changes = {"steps_per_generation": 1, "prompts_per_step": 1, "gradient_accumulation_steps": 1, "n_heldout": 1}
    training = settings(**changes, max_steps=3, save_steps=1)  # ends within an epoch
    whole = tmp_path / "whole"
    whole.mkdir()
    states = disk_states(whole, tmp_path, lambda: train(whole, training, WORDS))
    assert '"step": 2, "why": "best' in (whole / "adapter/training.jsonl").read_text(), "not the last checkpoint"
    last = next(i for i, state in enumerate(states) if (state / "work/checkpoint-2/trainer_state.json").exists())
    different = []
    for state in states[last:]:
        train(state, training, WORDS)
        if contents(state / "adapter") != contents(whole / "adapter"):
            different.append(state.name)
    assert different == []


def test_a_part_killed_after_its_last_checkpoint_makes_no_further_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    training = settings(steps_per_generation=1, prompts_per_step=1, gradient_accumulation_steps=1, save_steps=1)

    def die(*_: Any) -> None:
        raise TerminatedError

    train(tmp_path / "whole", training, WORDS, until_step=2)
    with monkeypatch.context() as patch, pytest.raises(TerminatedError):
        patch.setattr(grpo, "_write", die)
        train(tmp_path / "killed", training, WORDS, until_step=2)
    assert (tmp_path / "killed/work/checkpoint-2").exists()
    train(tmp_path / "killed", training, WORDS, until_step=2)
    whole, killed = ((tmp_path / name / "adapter").glob("*.*") for name in ("whole", "killed"))
    assert {path.name: path.read_bytes() for path in whole} == {path.name: path.read_bytes() for path in killed}


def test_fewer_prompts_than_a_batch_needs_are_refused(tmp_path: Path):
    with pytest.raises(InputError, match=r"there are 3 prompts .* prompts_per_step x steps_per_generation = 4"):
        train(tmp_path, settings(), WORDS[:3])
