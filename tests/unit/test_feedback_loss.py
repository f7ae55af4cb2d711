"""The loss of feedback between turns, against plain torch: row by row, without padding, masks or shared prompts."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from checkout import TINY
from letter_environment import Letters, Reward

from arc_refinery.config import Guard, Lora, ModelConfig, PolicyGradient, Sandbox
from arc_refinery.training import grpo
from arc_refinery.training.job import TrainingJob
from arc_refinery.training.rewards import Scored, ScoredCompletion
from arc_refinery.training.trainer import Trainer

pytestmark = [pytest.mark.training, pytest.mark.usefixtures("on_a_cpu")]

WEIGHT = 0.3
END = "<|end|>"
# Numbers of the turns of each token, 0 between two: one prompt's completions, then the other's
TURNS = (
    [1, 1, 1, 1],
    [1, 1, 1, 0, 0, 0, 0, 2, 2],
    [1, 1, 0, 0, 2, 0, 0, 0, 3, 3],  # the second answer is cut, so that its token carries no loss
    [1, 1, 0, 0, 0, 0, 0, 0, 2, 2],  # cut: masked by TRL
    [1, 0, 0, 2],
    [1, 1, 1, 0, 2],
    [1, 1],
    [1, 0, 0, 0, 2],  # failed: carries no loss
)
CUT, FAILED, UNLEARNED = 3, 7, (2, 4)
FEEDBACK = [(row, column) for row in (1, 2, 4, 5) for column, turn in enumerate(TURNS[row]) if turn == 0]


class Turns(Letters):
    """Decided completions of two prompts, with turns."""

    def __init__(self, training: PolicyGradient, feedback_loss: float) -> None:
        super().__init__(["one", "another word"], training, 0)
        self.feedback_loss = feedback_loss
        generator = torch.Generator().manual_seed(0)
        self.ids = [torch.randint(10, 40, (len(turns),), generator=generator).tolist() for turns in TURNS]

    def trainer(self, tokenizer: Any, ends: list[int], **arguments: Any) -> Trainer:
        for row, ids in enumerate(self.ids):
            if row != CUT:
                ids[-1] = ends[0]

        def rollout(rows: Sequence[Any], trainer: Any) -> dict[str, Any]:
            prompt_ids, _, _ = trainer._tokenize_prompts([row["prompt"] for row in rows])
            mask = [
                [int(turn > 0 and (row, column) != UNLEARNED) for column, turn in enumerate(turns)]
                for row, turns in enumerate(TURNS)
            ]
            return {"prompt_ids": prompt_ids, "completion_ids": self.ids, "env_mask": mask, "logprobs": None}

        return Trainer(self.training, Scripted(4, ends), rollout, self.feedback_loss, **arguments)


class Scripted(Reward):
    def __call__(self, completion_ids: Sequence[list[int]], **_: Any) -> Scored:  # type: ignore[override]
        return Scored(
            [
                ScoredCompletion(ids, row == CUT, float(row % 3), "ok", False, turns=turns, failed=row == FAILED)
                for row, (ids, turns) in enumerate(zip(completion_ids, TURNS, strict=True))
            ]
        )


def trainer_of(folder: Path, feedback_loss: float, **changes: Any) -> Any:
    values: dict[str, Any] = {"learning_rate": 1e-2, "max_grad_norm": 1, "beta": 0, "report_to": (), "save_steps": 2}
    values |= {"num_generations": 4, "prompts_per_step": 2, "gradient_accumulation_steps": 4}
    training = PolicyGradient.model_validate(values | changes)
    places: dict[str, Any] = {"output": folder / "adapter", "work": folder / "work", "measurements": None}
    places |= {"start": None, "tensorboard": folder / "tensorboard", "seed": 0}
    job = TrainingJob(
        ModelConfig(path=TINY, window=256), Lora(lora_r=4), training, Guard(action="none"), Sandbox(), **places
    )
    trainer = grpo.open_trainer(job, Turns(training, feedback_loss), {})
    trainer.model.train()
    trainer.current_gradient_accumulation_steps = trainer.args.gradient_accumulation_steps
    torch.manual_seed(1)
    for name, weights in trainer.model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weights, std=0.2)  # so that the gradients of both matrices differ from 0
    return trainer


def passes_of(trainer: Any) -> list[dict[str, Any]]:
    """What the passes of the first step learn from."""
    rows = [row for row in trainer.train_dataset for _ in range(4)]
    trainer._prepare_inputs(rows)
    passes: list[dict[str, Any]] = trainer._buffered_inputs
    return passes


def learned(trainer: Any, passes: Sequence[dict[str, Any]]) -> tuple[float, list[torch.Tensor]]:
    """The sum of the losses of passes, and its gradients."""
    trainer.model.zero_grad()
    losses = [trainer.compute_loss(trainer.model, inputs) for inputs in passes]
    for loss in losses:
        loss.backward()
    return sum(loss.item() for loss in losses), gradients(trainer)


def gradients(trainer: Any) -> list[torch.Tensor]:
    return [weights.grad.clone() for weights in trainer.model.parameters() if weights.requires_grad]


def plain_cross_entropy(trainer: Any) -> torch.Tensor:
    """Mean over the feedback tokens, by a pass over each row alone."""
    rows = trainer.train_dataset
    ids = trainer._completion_ids
    losses = []
    for row, column in FEEDBACK:
        prompt = trainer._tokenize_prompts([rows[row // 4]["prompt"]])[0][0]
        before = torch.tensor([prompt + ids[row][:column]])
        logits = trainer.model.get_base_model()(before).logits[0, -1]
        losses.append(-logits.log_softmax(-1)[ids[row][column]])
    return torch.stack(losses).mean()


@pytest.mark.parametrize(
    ("shared", "n_steps", "changes"),
    [
        ("auto", 1, {"loss_type": "dapo"}),
        ("off", 1, {"loss_type": "grpo"}),
        ("auto", 2, {"steps_per_generation": 2, "prompts_per_step": 1, "gradient_accumulation_steps": 2}),
    ],
)
def test_the_loss_of_a_step_and_its_gradient_are_those_of_plain_torch(
    shared: str, n_steps: int, changes: dict[str, Any], tmp_path: Path
) -> None:
    """Of two steps with one batch: their sum."""
    trainer = trainer_of(tmp_path, WEIGHT, shared_prefix=shared, **changes)
    passes = passes_of(trainer)
    assert len(passes) == 4 and trainer._shares_prompts == (shared == "auto")
    assert sum(int(inputs["feedback_mask"].sum()) for inputs in passes) == len(FEEDBACK) == 12
    n_forward = 0

    def count(*_: Any) -> None:
        nonlocal n_forward
        n_forward += 1

    hook = trainer.model.get_base_model().register_forward_hook(count)
    trainer._metrics["train"].clear()
    loss, whole = learned(trainer, passes)
    assert n_forward == 4, "one for each pass"
    hook.remove()
    logged = trainer._metrics["train"]["loss/feedback"]

    policy_loss, policy = learned(
        trainer, [{**inputs, "feedback_mask": inputs["feedback_mask"] * 0} for inputs in passes]
    )
    trainer.model.zero_grad()
    expected = plain_cross_entropy(trainer)
    expected.backward()
    assert sum(logged) / 4 == pytest.approx(expected.item(), rel=1e-5)
    assert loss == pytest.approx(policy_loss + n_steps * WEIGHT * expected.item(), rel=1e-5)
    assert any(part.abs().max() > 1e-4 for part in policy), "the policy has a gradient of its own"
    for both, own, of_feedback in zip(whole, policy, gradients(trainer), strict=True):
        assert torch.allclose(both, own + n_steps * WEIGHT * of_feedback, atol=1e-4 * float(both.abs().max()))
        assert of_feedback.abs().max() > 0.01


def test_with_weight_0_a_step_is_as_without_the_key(tmp_path: Path) -> None:
    trainer = trainer_of(tmp_path, 0.0)
    passes = passes_of(trainer)
    assert not any("feedback_mask" in inputs for inputs in passes)
    loss, parts = learned(trainer, passes)
    weighted = trainer_of(tmp_path / "weighted", WEIGHT)
    inputs = [{name: value for name, value in one.items() if name != "feedback_mask"} for one in passes_of(weighted)]
    other_loss, others = learned(weighted, inputs)
    assert loss == other_loss and all(torch.equal(*both) for both in zip(parts, others, strict=True))
    assert "loss/feedback" not in trainer._metrics["train"]


def test_episodes_without_feedback_log_no_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("test_feedback_loss.TURNS", tuple([1] * 4 for _ in TURNS))
    monkeypatch.setattr("test_feedback_loss.CUT", None)
    trainer = trainer_of(tmp_path, WEIGHT)
    loss, _ = learned(trainer, passes_of(trainer))
    assert torch.tensor(loss).isfinite() and "loss/feedback" not in trainer._metrics["train"]
