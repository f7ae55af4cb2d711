"""The rehearsal reads the longest rows before the first step, and changes nothing."""

import json
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from checkout import TINY
from letter_environment import MAX_TOKENS, Letters
from transformers import TrainerCallback

from arc_refinery.config import Guard, Lora, ModelConfig, PolicyGradient, Sandbox
from arc_refinery.errors import InputError
from arc_refinery.models.shape import shape_of
from arc_refinery.records.tool_use import Segment
from arc_refinery.refining.config import Sft
from arc_refinery.sampling.gpu_memory import training_pass
from arc_refinery.training import grpo, sft
from arc_refinery.training.job import TrainingJob
from arc_refinery.training.rehearsal import longest_of_grpo, longest_of_sft, run_pass
from arc_refinery.training.trainer import Trainer

MODEL = ModelConfig(path=TINY, window=64)
LORA = Lora(lora_r=2, lora_alpha=4)
TRAINING = PolicyGradient(
    learning_rate=1e-2,
    max_grad_norm=1.0,
    num_generations=4,
    prompts_per_step=2,
    gradient_accumulation_steps=2,
    n_heldout=2,
    beta=0.01,
    trl={"entropy_coef": 0.01},
    max_steps=2,
    save_steps=2,
    report_to=(),
)
WORDS = ("one", "two", "three", "four", "five", "six", "seven")
GIB, PEAK = 2**30, 5 * 2**30


def job_in(folder: Path, **changed: Any) -> TrainingJob:
    return TrainingJob(
        model=MODEL,
        lora=LORA,
        training=TRAINING.model_copy(update=changed),
        guard=Guard(),
        sandbox=Sandbox(),
        seed=0,
        start=None,
        output=folder / "adapter",
        work=folder / "checkpoints",
        measurements=folder / "measured.jsonl",
        tensorboard=folder / "tensorboard",
    )


def train(folder: Path, **changed: Any) -> dict[str, bytes]:
    """Bytes of the files that a training writes."""
    job = job_in(folder, **changed)
    grpo.train_grpo(job, Letters(WORDS, job.training, 0))
    return {path.name: path.read_bytes() for path in job.output.iterdir()}


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[int, ...]]]:
    """Pretend to our own two modules that there is a GPU; collect the shapes that are scored."""
    shapes: list[tuple[int, ...]] = []
    score = Trainer._get_per_token_logps_and_entropies

    def scored(trainer: Any, model: Any, ids: Any, *arguments: Any, **named: Any) -> Any:
        shapes.append(tuple(ids.shape))
        return score(trainer, model, ids, *arguments, **named)

    def is_available() -> bool:
        return sys._getframe(1).f_globals["__name__"] in ("arc_refinery.training.rehearsal", Trainer.__module__)

    monkeypatch.setattr(Trainer, "_get_per_token_logps_and_entropies", scored)
    for name, result in {
        "memory_allocated": GIB,
        "max_memory_allocated": PEAK,
        "max_memory_reserved": PEAK + GIB,
        "get_device_properties": SimpleNamespace(total_memory=8 * GIB),
        "reset_peak_memory_stats": None,
        "empty_cache": None,
    }.items():
        monkeypatch.setattr(torch.cuda, name, lambda *_, result=result: result)
    monkeypatch.setattr(torch.cuda, "is_available", is_available)
    yield shapes


@pytest.mark.model
@pytest.mark.training
def test_a_training_is_the_same_with_a_rehearsal(
    tmp_path: Path, seen: list[tuple[int, ...]], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    caplog.set_level(logging.INFO)
    rehearsed = train(tmp_path / "rehearsed")
    longest = 4, MODEL.window  # 2 prompts x 4 completions in 2 passes
    assert seen.count(longest) == 1
    assert longest not in seen[seen.index(longest) + 1 :], "no prompt is so long"
    n_bytes = sum(training_pass(shape_of(TINY), 4, *longest, MAX_TOKENS, 1).values())
    assert (
        f"rehearsal: 4 rows of up to 64 tokens take 4.0 GiB (estimate {n_bytes / GIB:.1f}) beside 1.0 GiB; "
        "6.0 of 8.0 GiB are reserved"
    ) in caplog.messages
    measured = [json.loads(line) for line in (tmp_path / "rehearsed/measured.jsonl").read_text().splitlines()]
    assert [line["gpu_mb"] for line in measured] == [PEAK / 2**20] * 2
    monkeypatch.undo()
    assert train(tmp_path / "plain") == rehearsed


class RunsPass(TrainerCallback):
    """Runs a pass, and notes what it leaves."""

    def __init__(self, trainer: Any) -> None:
        self.trainer = trainer
        self.before: dict[str, Any] = {}
        self.after: dict[str, Any] = {}
        self.gradients: list[float] = []

    def state(self) -> dict[str, Any]:
        network, optimizer = self.trainer.model, self.trainer.optimizer.state_dict()
        weights = {name: weight.detach().clone() for name, weight in network.named_parameters()}
        metrics = {mode: dict(values) for mode, values in self.trainer._metrics.items()}
        random = torch.get_rng_state()
        return {**weights, "optimizer": optimizer, "metrics": metrics, "random": random, "mode": network.training}

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        clear, network = self.trainer.model_wrapped.zero_grad, self.trainer.model_wrapped

        def noted() -> None:
            self.gradients = [float(p.grad.abs().sum()) for p in network.parameters() if p.grad is not None]
            clear()

        network.zero_grad = noted
        self.before = self.state()
        run_pass(self.trainer, longest_of_grpo(self.trainer, MODEL.window, MAX_TOKENS).inputs())
        self.after = self.state()
        network.zero_grad = clear
        assert not any(p.grad is not None and p.grad.any() for p in network.parameters())


@pytest.mark.model
@pytest.mark.training
@pytest.mark.parametrize("loss_type", ["bnpo", "dr_grpo", "dapo", "grpo"])
def test_a_pass_has_gradients_and_leaves_nothing(tmp_path: Path, loss_type: str):
    job = job_in(tmp_path, loss_type=loss_type, max_steps=1)
    trainer = grpo.open_trainer(job, Letters(WORDS, job.training, 0), {})
    noted = RunsPass(trainer)
    trainer.add_callback(noted)
    trainer.train()
    assert sum(noted.gradients) > 0
    assert noted.before.keys() == noted.after.keys()
    for name, value in noted.before.items():
        assert value.equal(noted.after[name]) if isinstance(value, torch.Tensor) else value == noted.after[name], name


@pytest.mark.model
@pytest.mark.training
def test_memory_that_does_not_suffice_ends_the_training(
    tmp_path: Path, seen: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch
):
    def too_much(*_: Any, **__: Any) -> None:
        raise torch.OutOfMemoryError("Tried to allocate 2.00 GiB.")

    monkeypatch.setattr(Trainer, "compute_loss", too_much)
    with pytest.raises(InputError, match=r"4 rows of up to 64 tokens.*gradient_accumulation_steps.*Tried to allocate"):
        train(tmp_path, n_heldout=0)


@pytest.mark.parametrize(
    ("n_rows", "n_passes", "group", "n_prompts"),
    [
        (16, 2, 32, 1),
        (8, 1, 4, 2),
        (3, 4, 4, 2),  # rows 3 to 5 belong to the prompts 0, 1, 1
        (6, 2, 4, 2),
        (2, 2, 2, 1),
    ],
)
def test_a_pass_has_as_many_prompts_as_can_meet(n_rows: int, n_passes: int, group: int, n_prompts: int):
    trainer = SimpleNamespace(
        args=SimpleNamespace(per_device_train_batch_size=n_rows, steps_per_generation=n_passes),
        accelerator=SimpleNamespace(num_processes=1, device="cpu"),
        num_generations=group,
        _shares_prompts=True,
    )
    longest = longest_of_grpo(trainer, length=10, n_scored=4)
    assert longest.n_prompts == n_prompts
    inputs = longest.inputs()
    assert inputs["prompt_ids"].shape == (n_rows, 6) and inputs["completion_ids"].shape == (n_rows, 4)
    assert len(inputs["prompt_ids"].unique(dim=0)) == n_prompts
    trainer._shares_prompts = False
    assert longest_of_grpo(trainer, length=10, n_scored=4).n_prompts == 0
    whole_episode = longest_of_grpo(trainer, length=10, n_scored=10)
    assert whole_episode.inputs()["prompt_ids"].shape == (n_rows, 1), "a prompt has a token"


@pytest.mark.model
@pytest.mark.training
@pytest.mark.usefixtures("seen")
def test_fine_tuning_rehearses_its_longest_rows(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    caplog.set_level(logging.INFO)
    texts = ["grid", "grid grid grid grid", "grid grid", "grid grid grid"]
    rows = [
        sft.SftRow(str(index), (Segment("return ", False), Segment(text, True))) for index, text in enumerate(texts)
    ]
    training = Sft(learning_rate=1e-2, max_grad_norm=1.0, rows_per_step=2, save_steps=2, max_steps=2)

    def trained(folder: Path) -> dict[str, bytes]:
        sft.train_sft(rows, MODEL, LORA, training, 0, folder / "adapter", folder / "checkpoints")
        return {path.name: path.read_bytes() for path in (folder / "adapter").iterdir()}

    trainer = sft.open_trainer(rows, MODEL, LORA, training, 0, tmp_path / "opened")
    longest = longest_of_sft(trainer)
    by_length = sorted((row["input_ids"] for row in trainer.train_dataset), key=len)
    assert longest.inputs()["input_ids"].tolist() == [by_length[-2] + by_length[-1]]
    rehearsed = trained(tmp_path / "rehearsed")
    assert any(message.startswith(f"rehearsal: 2 rows of up to {longest.length} tokens") for message in caplog.messages)
    monkeypatch.undo()
    assert trained(tmp_path / "plain") == rehearsed


def test_a_model_of_unknown_size_has_no_estimate():
    trainer = SimpleNamespace(
        args=SimpleNamespace(per_device_train_batch_size=2, steps_per_generation=1),
        accelerator=SimpleNamespace(num_processes=1, device="cpu"),
        num_generations=2,
        _shares_prompts=True,
    )
    longest = longest_of_grpo(trainer, 10, 4)
    assert longest.estimate(MODEL.model_copy(update={"path": "nobody/nothing"})) == "unknown"
