"""Training settings that do not go together are refused, with the reason, before anything is loaded."""

import re
from typing import Any

import pytest
import yaml
from checkout import ROOT
from experiments import settings_of
from messages import Wording
from pydantic import ValidationError

from arc_refinery.config import ConfigError, load_experiment, validate_experiment
from arc_refinery.domains.arc.config import ArcExperiment
from arc_refinery.jobs import train
from arc_refinery.refining.config import Grpo, Training

GRPO: dict[str, Any] = {"learning_rate": 1e-4}
SFT: dict[str, Any] = {"learning_rate": 1e-3}
LENGTHS: dict[str, Any] = {"max_completion_length": 48, "max_seq_length": 1024}

PLAIN: dict[str, Any] = {"sampler": "vllm-colocate", "top_p": 1.0, "repetition_penalty": 1.0}


def words(text: str) -> set[str]:
    return set(re.findall(r"[\w.`-]*[\w`]", text))


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ({"trl": {"epsilon": 0.3}, "epsilon_high": 0.25}, "epsilon_high 0.25 epsilon 0.3"),
        ({"epsilon_high": 0.1}, "epsilon_high 0.1 epsilon 0.2"),
        ({"steps_per_generation": 4, "save_steps": 6}, "save_steps 6 steps_per_generation 4"),
        ({"trl": {"num_iterations": 2}}, "num_iterations"),
        ({"trl": {"importance_sampling_level": "sequence"}}, "importance_sampling_level"),
        ({"steps_per_generation": 2, "unsloth": True}, "unsloth steps_per_generation"),
        ({"sleep_mode": True}, "sleep_mode sampler `transformers`"),
        ({"sleep_mode": True, "sampler": "vllm-colocate", "unsloth": True}, "unsloth sleep_mode"),
        ({"trl": {"top_entropie_quantile": 0.2}}, "top_entropie_quantile TRL top_entropy_quantile"),
        ({"trl": {"top_entropy_quantile": "0.2"}}, "top_entropy_quantile float"),
        ({"trl": {"top_k": 0.5}}, "top_k 0.5 int"),
        ({"trl": {"beta": 0.1}}, "beta `beta`"),
        ({"trl": {"num_train_epochs": 2}}, "num_train_epochs `epochs`"),
        ({"trl": {"output_dir": "here"}}, "output_dir"),
        ({"advantage": "best-of-33"}, "advantage `best-of-33` 2 num_generations 32"),
        ({"advantage": "best-of-1"}, "advantage `best-of-1` 2"),
        ({"advantage": "best-of-04"}, "advantage best-of-4"),
        ({"advantage": "leave-one-out"}, "advantage `leave-one-out` scale_rewards `none`"),
        ({"refill": 1, "trl": {"log_completions": True}}, "refill trl.log_completions"),
        ({"advantage": "best"}, "advantage group leave-one-out best-of-4 others"),
        ({"advantage": "others"}, "advantage `others` rollout `on-policy`"),
        ({"advantage": "others", "rollout": "on-policy"}, "advantage `others` scale_rewards `none`"),
        ({"advantage": "mine.py:own"}, "advantage `mine.py:own` scale_rewards `none`"),
        *(
            ({"n_processes": 2} | settings, f"n_processes 2 {names}")
            for settings, names in (
                ({"unsloth": True}, "unsloth"),
                ({"rollout": "on-policy"}, "rollout `on-policy`"),
                ({"refill": 1}, "refill 0"),
                ({"steps_per_generation": 2}, "steps_per_generation"),
                ({"gradient_accumulation_steps": 1}, "gradient_accumulation_steps 1"),
                ({"prompts_per_step": 2, "n_heldout": 3}, "n_heldout 3 prompts_per_step 2"),
            )
        ),
        ({"kv_cache_gb": 4}, "kv_cache_gb `vllm-colocate`"),
        ({"feedback_loss": 0.1}, "feedback_loss prepared rollout `on-policy` 0"),
        ({"feedback": "twin"}, "`twin` prepared rollout `on-policy`"),
    ],
)
def test_grpo_settings_that_do_not_go_together(settings: dict[str, Any], names: str, wording: Wording) -> None:
    with pytest.raises(ValidationError) as caught:
        Grpo.model_validate(GRPO | settings)
    (error,) = caught.value.errors()
    assert words(names) <= words(error["msg"])
    wording(error["msg"].removeprefix("Value error, "))


@pytest.mark.parametrize(
    ("grpo", "n_gpus", "expected"),
    [
        ({}, 2, 1),
        ({"n_processes": 2}, 1, 2),
        ({"n_processes": 2}, 3, 2),
    ],
)
def test_a_training_asks_for_the_gpus_that_it_uses(
    grpo: dict[str, Any], n_gpus: int, expected: int, wording: Wording
) -> None:
    content = yaml.safe_load((ROOT / "tests/refining.yaml").read_text())
    content["training"]["grpo"] |= {"gradient_accumulation_steps": 2} | grpo
    with pytest.raises(ConfigError) as caught:
        validate_experiment(content | {"resources": {"train": {"gpus": n_gpus}}}, "test", ArcExperiment)
    text = str(caught.value)
    assert text.startswith("test: resources.train.gpus")
    assert f"gpus is {n_gpus}; set it to {expected}" in text
    wording(text)
    n_used = Grpo.model_validate({"learning_rate": 1e-4} | grpo).n_training_processes
    assert n_used == expected
    validate_experiment(content | {"resources": {"train": {"gpus": n_used}}}, "test", ArcExperiment)


@pytest.mark.parametrize(
    "settings",
    [
        {"loss_type": "cispo", "epsilon_high": 0.1},  # there it is a cap of its own
        {"loss_type": "vespo", "sampler": "vllm-colocate"},
        {"epsilon_high": 0.2},
        {"sampler": "vllm-colocate", "top_p": 0.95},
        {"sampler": "vllm-colocate", "sleep_mode": True, "n_processes": 2},
        {"steps_per_generation": 4, "save_steps": 8},
        {"sampler": "vllm-colocate", "importance_sampling_correction": False},
    ],
)
def test_grpo_settings_that_do(settings: dict[str, Any]) -> None:
    Grpo.model_validate(GRPO | settings)


@pytest.mark.parametrize("name", ["multi-turn-rl", "single-turn-rl", "arc-training-rl", "one-task-sanity"])
def test_published_trainings_correct_nothing_and_take_sixteen_completions_a_pass(name: str) -> None:
    path = ROOT / f"config/{name}.yaml"
    for run in load_experiment(path).runs.values():
        assert not run.grpo.importance_sampling_correction
        assert run.grpo.num_generations * run.grpo.prompts_per_step // run.grpo.gradient_accumulation_steps == 16


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ({}, "`sft` `grpo`"),
        ({"sft": SFT, "sweep": [{"beta": 0.1}]}, "sweep `grpo`"),
        ({"sft": SFT, "grpo": GRPO, "sweep": [{"lora_r": 2}]}, "sweep lora_r"),
        ({"grpo": GRPO, "sweep": [{"max_seq_length": 2}]}, "sweep max_seq_length"),
        (
            {"sft": SFT | {"rows_per_step": 2, "gradient_accumulation_steps": 3}},
            "rows_per_step 2 gradient_accumulation_steps 3",
        ),
        ({"grpo": GRPO, "seeds": [1, 1]}, "seeds 1"),
        ({"grpo": GRPO | {"rollout": "on-policy"}}, "rollout `on-policy` training.prompts `first-turn`"),
        *(
            (
                {"grpo": GRPO | {"sampler": sampler, "unsloth": unsloth}, "lora": {"load_in_4bit": True}},
                "load_in_4bit vLLM",
            )
            for sampler, unsloth in (("vllm-colocate", False), ("vllm-colocate", True))
        ),
        (
            {"grpo": GRPO | {"sampler": "vllm-colocate"}, "sweep": [{"load_in_4bit": True}]},
            "load_in_4bit vLLM",
        ),
    ],
)
def test_methods_that_do_not_go_together(settings: dict[str, Any], names: str, wording: Wording) -> None:
    with pytest.raises(ValidationError) as caught:
        Training.model_validate(LENGTHS | settings)
    (error,) = caught.value.errors()
    assert words(names) <= words(error["msg"])
    wording(error["msg"].removeprefix("Value error, "))


def test_weights_in_4_bits_go_with_the_transformers_sampler() -> None:
    assert Training.model_validate(LENGTHS | {"grpo": GRPO, "lora": {"load_in_4bit": True}}).lora.load_in_4bit


def demo(**training: Any) -> dict[str, Any]:
    content = yaml.safe_load((ROOT / "tests/refining.yaml").read_text())
    content["training"] = LENGTHS | training
    del content["evaluation"]["primary"]
    return dict(content)


def test_the_adapters_of_each_method() -> None:
    assert validate_experiment(demo(grpo=GRPO), "demo", ArcExperiment).adapters == ["trained"]
    attempts = SFT | {"demonstrations": {"targets": "attempts"}}
    alone = validate_experiment(demo(sft=attempts), "demo", ArcExperiment)
    assert (alone.adapters, alone.trained, dict(alone.runs)) == (["trained"], ["trained"], {})
    both = validate_experiment(demo(grpo=GRPO, sft=attempts), "demo", ArcExperiment)
    assert (both.adapters, both.trained, both.start_of("trained")) == (["sft", "trained"], ["trained"], "sft")


def test_an_arm_may_use_the_adapter_that_grpo_went_on_from() -> None:
    content = demo(grpo=GRPO, sft=SFT | {"demonstrations": {"targets": "attempts"}})
    content["evaluation"]["arms"][2]["turns"][1]["adapter"] = "sft"
    assert "refine-trained-turn2" in validate_experiment(content, "demo", ArcExperiment).branches


def test_sources_answer_tasks_that_are_shown_as_they_are(wording: Wording) -> None:
    content = demo(sft=SFT)
    content["arc"] = {"augment_parts": True}
    with pytest.raises(ConfigError) as caught:
        validate_experiment(content, "demo", ArcExperiment)
    assert "arc.augment_parts" in str(caught.value)
    wording(caught.value)
    content["arc"] = {"augment_parts": False}
    experiment = validate_experiment(content, "demo", ArcExperiment)
    assert not experiment.own_of(experiment.part_names[0]).use_data_augmentation


def test_runs_of_a_sweep_may_differ_in_precision() -> None:
    sweep = [{"dtype": "float16"}, {"dtype": "bfloat16", "beta": 0.1}, {"optimizer": "adamw_8bit"}]
    experiment = validate_experiment(demo(grpo=GRPO, sweep=sweep), "demo", ArcExperiment)
    assert list(experiment.runs) == ["dtype-float16", "dtype-bfloat16-beta-0.1", "optimizer-adamw-8bit"]
    precisions = [settings_of(train(experiment, name))["model"]["dtype"] for name in experiment.runs]
    assert precisions == ["float16", "bfloat16", "float32"]


def test_with_seeds_everything_is_trained_for_each_and_compared_apart() -> None:
    attempts = SFT | {"demonstrations": {"targets": "attempts"}}
    content = demo(grpo=GRPO, sft=attempts, seeds=[3, 13], sweep=[{"beta": 0.1}])
    content["evaluation"]["arms"].append({"name": "by-sft", "turns": [{"n_predictions": 8, "adapter": "sft"}]})
    experiment = validate_experiment(content, "demo", ArcExperiment)
    assert experiment.adapters == ["sft-seed-3", "sft-seed-13", "beta-0.1-seed-3", "beta-0.1-seed-13"]
    assert [experiment.seed_of(name) for name in experiment.adapters] == [3, 13, 3, 13]
    assert experiment.start_of("beta-0.1-seed-13") == "sft-seed-13"
    assert [arm.name for arm in experiment.arms][2:] == [
        "refine-trained-beta-0.1-seed-3",
        "refine-trained-beta-0.1-seed-13",
        "by-sft-seed-3",
        "by-sft-seed-13",
    ]
    assert experiment.arms[-1].turns[0].adapter == "sft-seed-13"
    alone = validate_experiment(demo(sft=attempts, seeds=[3, 13]), "demo", ArcExperiment)
    assert alone.adapters == alone.trained == ["seed-3", "seed-13"]
    assert [arm.turns[-1].adapter for arm in alone.arms] == ["none", "none", "seed-3", "seed-13"]
