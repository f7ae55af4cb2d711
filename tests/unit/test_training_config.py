"""Training settings that do not go together are refused, with the reason, before anything is loaded."""

from typing import Any

import pytest
import yaml
from checkout import ROOT
from pydantic import ValidationError

from arc_refinery.config import (
    ConfigError,
    Grpo,
    Refining,
    Training,
    load_experiment,
    validate_experiment,
)
from arc_refinery.config.stages import train

GRPO: dict[str, Any] = {"learning_rate": 1e-4}
SFT: dict[str, Any] = {"learning_rate": 1e-3}
LENGTHS: dict[str, Any] = {"max_completion_length": 48, "max_seq_length": 1024}

PLAIN: dict[str, Any] = {"sampler": "vllm-colocate", "top_p": 1.0, "repetition_penalty": 1.0}


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"frequency_penalty": 0.5}, "frequency_penalty needs a vLLM sampler"),
        ({"stream": True}, "a stream has no known length; set max_steps"),
        ({"stream": True, "max_steps": 5, "n_heldout": 2}, "prompts cannot be held out of a stream"),
        ({"epsilon": 0.3, "epsilon_high": 0.2}, "must not be below epsilon = 0.3"),
        (
            {"steps_per_generation": 4, "save_steps": 6},
            "num_iterations x steps_per_generation = 4: training can resume",
        ),
        ({"num_iterations": 2, "save_steps": 3}, "save_steps = 3 must be a multiple"),
        ({"steps_per_generation": 2, "unsloth": True}, "unsloth: steps_per_generation above 1 is not supported yet"),
        ({"sleep_mode": True}, "sleep_mode with sampler `transformers`: it is for `vllm-colocate`"),
        ({"sleep_mode": True, "sampler": "vllm-server"}, "sleep_mode with sampler `vllm-server`"),
        ({"sleep_mode": True, "sampler": "vllm-colocate", "unsloth": True}, "unsloth: its vLLM .* set sleep_mode to"),
        ({"pass_at_k": 33}, "more than num_generations = 32"),
        ({"loss_type": "dapo", "importance_sampling_level": "sequence"}, "goes with loss_type `grpo`"),
        ({"loss_type": "luspo"}, "goes with importance_sampling_level `sequence`"),
        (
            {
                "loss_type": "vespo",
                "sampler": "vllm-server",
                "importance_sampling_mode": "sequence_mask",
                "top_p": 1.0,
                "repetition_penalty": 1.0,
            },
            "`token_truncate` or `token_mask`",
        ),
        *(
            ({"n_processes": 2} | settings, said)
            for settings, said in (
                ({"unsloth": True}, "n_processes = 2: Unsloth trains in one process; set unsloth to false"),
                ({"sampler": "vllm-server"}, "n_processes = 2: sampler `vllm-server` is not supported yet"),
                ({"rollout": "on-policy"}, "n_processes = 2: rollout `on-policy` is not supported yet"),
                ({"steps_per_generation": 2}, "n_processes = 2: steps_per_generation above 1 is not supported yet"),
                ({"stream": True, "max_steps": 5}, "n_processes = 2: streamed prompts are not supported yet"),
                ({"gradient_accumulation_steps": 1}, "gradient_accumulation_steps is 1; set it to a multiple of 2"),
                ({"prompts_per_step": 2, "n_heldout": 3}, "n_heldout = 3 must be a multiple of prompts_per_step = 2"),
            )
        ),
        *(
            (
                PLAIN | {"importance_sampling_mode": mode} | cutting,
                "the difference drowns the gradient",
            )
            for mode in ("sequence_mask", "sequence_truncate")
            for cutting in ({"top_p": 0.95}, {"repetition_penalty": 1.02}, {"frequency_penalty": 0.1})
        ),
    ],
)
def test_grpo_settings_that_do_not_go_together(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        Grpo.model_validate(GRPO | settings)


@pytest.mark.parametrize(
    ("grpo", "n_gpus", "said"),
    [
        (
            {"sampler": "vllm-server"},
            1,
            "needs sampler_gpus = 1 beside the GPU that trains, but gpus is 1; set it to 2",
        ),
        ({"sampler": "vllm-server", "sampler_gpus": 3}, 3, "needs sampler_gpus = 3 beside .* gpus is 3; set it to 4"),
        ({"sampler": "vllm-server"}, 3, "trains on one GPU and samples on 1, but gpus is 3; set it to 2"),
        ({"sampler": "vllm-server", "server_url": "http://node:8000"}, 2, "trains on one GPU, but gpus is 2"),
        ({}, 2, "trains on one GPU, but gpus is 2; set it to 1, or grpo.n_processes to 2, or sampler to vllm-server"),
        ({"n_processes": 2}, 1, "trains in n_processes = 2, each on a GPU, but gpus is 1; set it to 2"),
        ({"n_processes": 2}, 3, "trains on 2 GPUs, but gpus is 3; set it to 2, or grpo.n_processes to 3"),
    ],
)
def test_a_training_asks_for_the_gpus_that_it_uses(grpo: dict[str, Any], n_gpus: int, said: str) -> None:
    content = yaml.safe_load((ROOT / "tests/refining.yaml").read_text())
    content["training"]["grpo"] |= {"gradient_accumulation_steps": 2} | grpo
    with pytest.raises(ConfigError, match=said):
        validate_experiment(content | {"resources": {"train": {"gpus": n_gpus}}}, "test", Refining)
    used = Grpo.model_validate({"learning_rate": 1e-4} | grpo)
    n_used = used.n_training_processes + used.n_server_gpus
    validate_experiment(content | {"resources": {"train": {"gpus": n_used}}}, "test", Refining)


@pytest.mark.parametrize(
    "settings",
    [
        {"frequency_penalty": 0.5, "sampler": "vllm-colocate"},
        {"stream": True, "max_steps": 5},
        {"loss_type": "cispo", "epsilon_high": 0.1},  # there it is a cap of its own
        {"loss_type": "luspo", "importance_sampling_level": "sequence"},
        {"loss_type": "vespo", "sampler": "vllm-server", "importance_sampling_mode": "token_mask"},
        {"sampler": "vllm-colocate", "top_p": 0.95},
        {"sampler": "vllm-colocate", "sleep_mode": True, "n_processes": 2},
        {"steps_per_generation": 4, "num_iterations": 2, "save_steps": 8},
        {
            "sampler": "vllm-colocate",
            "importance_sampling_mode": "sequence_mask",
            "top_p": 1.0,
            "repetition_penalty": 1.0,
        },
        {
            "sampler": "vllm-colocate",
            "importance_sampling_mode": "sequence_mask",
            "importance_sampling_correction": False,
        },
    ],
)
def test_grpo_settings_that_do(settings: dict[str, Any]) -> None:
    Grpo.model_validate(GRPO | settings)


def test_the_correction_for_vllms_probabilities_is_of_tokens_and_capped_at_two() -> None:
    made = Grpo.model_validate(GRPO)
    assert (made.importance_sampling_mode, made.importance_sampling_cap) == ("token_truncate", 2.0)


@pytest.mark.parametrize("name", ["multi-turn-rl", "single-turn-rl", "arc-training-rl", "one-task-sanity"])
def test_published_trainings_correct_nothing_and_take_sixteen_completions_a_pass(name: str) -> None:
    path = ROOT / f"config/{name}.yaml"
    for run in load_experiment(path).runs.values():
        assert not run.grpo.importance_sampling_correction
        assert run.grpo.num_generations * run.grpo.prompts_per_step // run.grpo.gradient_accumulation_steps == 16


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, "there is nothing to train with; give the section `sft`, `grpo`, or both"),
        ({"sft": SFT, "sweep": [{"beta": 0.1}]}, "sweep: varies GRPO"),
        ({"sft": SFT, "grpo": GRPO, "sweep": [{"lora_r": 2}]}, "lora_r cannot differ between runs"),
        ({"grpo": GRPO, "sweep": [{"max_seq_length": 2}]}, "max_seq_length cannot differ between runs"),
        ({"sft": SFT | {"rows_per_step": 2, "gradient_accumulation_steps": 3}}, "must be divisible by"),
        ({"grpo": GRPO, "seeds": [1, 1]}, "name each seed once"),
        ({"grpo": GRPO | {"rollout": "on-policy"}}, "set training.prompts to `first-turn`"),
        *(
            (
                {"grpo": GRPO | {"sampler": sampler, "unsloth": unsloth}, "lora": {"load_in_4bit": True}},
                "vLLM 0.31 cannot load 4-bit bitsandbytes weights",
            )
            for sampler, unsloth in (("vllm-colocate", False), ("vllm-server", False), ("vllm-colocate", True))
        ),
        (
            {"grpo": GRPO | {"sampler": "vllm-server"}, "sweep": [{"load_in_4bit": True}]},
            "vLLM 0.31 cannot load 4-bit bitsandbytes weights",
        ),
    ],
)
def test_methods_that_do_not_go_together(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        Training.model_validate(LENGTHS | settings)


def test_weights_in_4_bits_go_with_the_transformers_sampler() -> None:
    assert Training.model_validate(LENGTHS | {"grpo": GRPO, "lora": {"load_in_4bit": True}}).lora.load_in_4bit


def demo(**training: Any) -> dict[str, Any]:
    content = yaml.safe_load((ROOT / "tests/refining.yaml").read_text())
    content["training"] = LENGTHS | training
    del content["evaluation"]["primary"]
    return dict(content)


def test_the_adapters_of_each_method() -> None:
    assert validate_experiment(demo(grpo=GRPO), "demo", Refining).adapters == ["trained"]
    attempts = SFT | {"demonstrations": {"targets": "attempts"}}
    alone = validate_experiment(demo(sft=attempts), "demo", Refining)
    assert (alone.adapters, alone.trained, dict(alone.runs)) == (["trained"], ["trained"], {})
    both = validate_experiment(demo(grpo=GRPO, sft=attempts), "demo", Refining)
    assert (both.adapters, both.trained, both.start_of("trained")) == (["sft", "trained"], ["trained"], "sft")


def test_an_arm_may_use_the_adapter_that_grpo_went_on_from() -> None:
    content = demo(grpo=GRPO, sft=SFT | {"demonstrations": {"targets": "attempts"}})
    content["evaluation"]["arms"][2]["turns"][1]["adapter"] = "sft"
    assert "refine-trained-turn2" in validate_experiment(content, "demo", Refining).branches


def test_sources_answer_tasks_that_are_shown_as_they_are() -> None:
    content = demo(sft=SFT)
    content["parts"]["use_data_augmentation"] = True
    with pytest.raises(ConfigError, match=r"set parts\.use_data_augmentation to false"):
        validate_experiment(content, "demo", Refining)
    content["parts"]["use_data_augmentation"] = False
    assert not validate_experiment(content, "demo", Refining).augments_parts


def test_runs_of_a_sweep_may_differ_in_precision() -> None:
    sweep = [{"dtype": "float16"}, {"dtype": "bfloat16", "beta": 0.1}, {"optimizer": "adamw_8bit"}]
    made = validate_experiment(demo(grpo=GRPO, sweep=sweep), "demo", Refining)
    assert list(made.runs) == ["dtype-float16", "dtype-bfloat16-beta-0.1", "optimizer-adamw-8bit"]
    precisions = [train(made, name).params["dtype"] for name in made.runs]
    assert precisions == ["float16", "bfloat16", "float32"]


def test_with_seeds_everything_is_trained_for_each_and_compared_apart() -> None:
    attempts = SFT | {"demonstrations": {"targets": "attempts"}}
    content = demo(grpo=GRPO, sft=attempts, seeds=[3, 13], sweep=[{"beta": 0.1}])
    content["evaluation"]["arms"].append({"name": "by-sft", "turns": [{"n_predictions": 8, "adapter": "sft"}]})
    experiment = validate_experiment(content, "demo", Refining)
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
    alone = validate_experiment(demo(sft=attempts, seeds=[3, 13]), "demo", Refining)
    assert alone.adapters == alone.trained == ["seed-3", "seed-13"]
    assert [arm.turns[-1].adapter for arm in alone.arms] == ["none", "none", "seed-3", "seed-13"]
