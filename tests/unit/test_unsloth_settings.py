"""Settings of Unsloth that are refused before anything is loaded. Training through it: tests/unsloth_cpu/."""

import importlib
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from checkout import ROOT
from pydantic import ValidationError

from arc_refinery.config import load_experiment
from arc_refinery.errors import InputError
from arc_refinery.refining.config import Grpo, Sft, Training

GRPO: dict[str, Any] = {"learning_rate": 1e-4}


@pytest.mark.parametrize("path", sorted((ROOT / "config").glob("*-unsloth.yaml")), ids=lambda path: path.stem)
def test_all_gpu_jobs_of_the_configs_with_unsloth_get_its_environment(path: Path) -> None:
    resources = load_experiment(path).resources
    assert resources.sample.venv == resources.train.venv == ".venv-gpu-unsloth"


@pytest.mark.skipif(find_spec("unsloth") is not None, reason="Unsloth is installed here")
def test_without_unsloth_the_sets_that_have_it_are_named() -> None:
    with pytest.raises(InputError, match=r"envs/gpu-unsloth\.txt.*envs/unsloth-cpu\.txt"):
        importlib.import_module("arc_refinery.training.unsloth_backend")


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"loss_type": "bnpo"}, "set loss_type to `dapo`"),
    ({"loss_type": "dapo"}, "its own default epsilon_high for the loss dapo"),
    ({"loss_type": "cispo"}, "its own default epsilon_high for the loss cispo"),
    ({"loss_type": "dr_grpo", "scale_rewards": "group"}, "set scale_rewards to"),
    ({"drop_zero_variance": True, "mask_truncated_completions": False}, "only with mask_truncated_completions"),
    ({"advantage": "mine.py:own", "scale_rewards": "none"}, "not supported with unsloth"),
    ({"refill": 1}, "refill is not supported yet"),
    ({"feedback_loss": 0.1, "rollout": "on-policy"}, "feedback_loss is not supported"),
]


@pytest.mark.parametrize(("settings", "said"), REFUSED)
def test_what_unsloth_would_do_otherwise_is_refused(settings: dict[str, Any], said: str) -> None:
    Grpo.model_validate(GRPO | settings)
    with pytest.raises(ValidationError, match=said):
        Grpo.model_validate(GRPO | settings | {"unsloth": True})


@pytest.mark.parametrize(
    "settings",
    [
        {"loss_type": "dapo", "epsilon_high": 0.28},
        {"loss_type": "cispo", "epsilon_high": 5.0},
        {"loss_type": "dr_grpo", "scale_rewards": "none"},
        {"drop_zero_variance": True, "mask_truncated_completions": True},
        {"sampler": "vllm-colocate", "trl": {"entropy_coef": 0.01}, "advantage": "best-of-4", "rollout": "on-policy"},
    ],
)
def test_the_rest_goes_through_unsloth(settings: dict[str, Any]) -> None:
    assert Grpo.model_validate(GRPO | settings | {"unsloth": True}).unsloth


def test_grpo_after_sft_goes_through_unsloth_without_a_kl_term() -> None:
    rest = {"max_completion_length": 48, "max_seq_length": 1024, "sft": Sft(learning_rate=1e-4)}
    with pytest.raises(ValidationError, match="set beta to 0"):
        Training.model_validate(rest | {"grpo": GRPO | {"unsloth": True}})
    Training.model_validate(rest | {"grpo": GRPO | {"unsloth": True, "beta": 0.0}})
