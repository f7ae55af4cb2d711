"""Command lines of the published scripts still work after `arc-refinery sample` and `arc-refinery train`."""

import gzip
import json
import shlex
from pathlib import Path
from string import Template
from typing import Any

import pytest
from checkout import TINY
from messages import Wording

from arc_refinery import cli, records
from arc_refinery.domains.arc.config import REWARDS, Showing
from arc_refinery.domains.arc.prompt_files import prompts_in
from arc_refinery.domains.arc.records import Attempt
from arc_refinery.errors import InputError
from arc_refinery.refining.config import Sampling

SAMPLING = Sampling(n_predictions=1, batch_size=1, max_output_tokens=8)
PLAIN = Showing(use_data_augmentation=False)

# As they stand in the published texts (ironbar/arc25, docs/modeling/Iteration_33 and Iteration_34), with shorter paths
SAMPLE = (
    "python scripts/inference_with_BARC.py --n-predictions 8 --dataset-path data/dataset_10k_part${PART}.json.gz "
    "--use-data-augmentation --output-folder data/part${PART}"
)
EVALUATE = (
    "python data/inference_with_BARC.py --n-predictions 128 --base-model-path "
    "data/Llama-3.1-ARC-Potpourri-Induction-8B --lora-path data/checkpoint-${STEPS} --dataset-path "
    "data/arc-agi_evaluation_challenges.json --use-data-augmentation --output-folder data/evaluation"
)
SECOND_TURNS = (
    "python data/multi-turn_rl_code_finetuning.py --lora_r ${LORA_R} --beta ${BETA} --max-grad-norm ${MAX_GRAD_NORM} "
    "--no-load-in-4bit --reward-name ${REWARD_NAME} --num-generations ${NUM_GENERATIONS} "
    "--gradient-accumulation-steps ${ACUM_STEPS} --learning-rate ${LEARNING_RATE} --repetition-penalty "
    "${REPETITION_PENALTY} --epochs ${EPOCHS} --mask-truncated-completions --scale-rewards batch "
    "--gpu_memory_utilization 0.3 --warmup-ratio 0.01 --max-seq-length 9700 --max-completion-length 1024 --n-jobs "
    "${N_CPUS} --save-steps 200 --model-path data/Llama-3.1-ARC-Potpourri-Induction-8B --dataset-path "
    "data/refine_dataset.json.gz --output-dir data/${EXPERIMENT_NAME}"
)
DEBUG = (
    "python scripts/rl_code_finetuning.py --dataset-path data/dataset_100k.json.gz --epochs 1 --output-dir data/debug"
)
FIRST_TURNS = (
    "python data/rl_code_finetuning.py --beta ${BETA} --no-load-in-4bit --reward-name ${REWARD_NAME} "
    "--num-generations ${NUM_GENERATIONS} --gradient-accumulation-steps ${ACUM_STEPS} --learning-rate ${LEARNING_RATE} "
    "--lora_r ${LORA_R} --repetition-penalty ${REPETITION_PENALTY} --epochs ${EPOCHS} --mask-truncated-completions "
    "--scale-rewards batch --gpu_memory_utilization 0.3 --warmup-ratio 0.01 --max-seq-length 9700 "
    "--max-completion-length 1024 --n-jobs ${N_CPUS} --model-path data/Llama-3.1-ARC-Potpourri-Induction-8B "
    "--dataset-path data/dataset_100k.json.gz --output-dir data/${EXPERIMENT_NAME}"
)
# Defaults of both training scripts, and of what they leave to Unsloth 2025.9.3 and TRL 0.23.0. Not taken over:
# `load_in_4bit` and `adamw_8bit`, which need a GPU.
SCRIPT: dict[str, Any] = {
    "learning_rate": 1e-5,
    "lr_scheduler_type": "constant_with_warmup",
    "warmup_ratio": 0.1,
    "weight_decay": 0.01,
    "max_grad_norm": 0.1,
    "epochs": 10,
    "save_steps": 100,
    "rewards": ({"reward": "arc-v1", "weight": 1.0},),
    "loss_type": "bnpo",
    "beta": 0.001,
    "scale_rewards": "group",
    "repetition_penalty": 1.0,
    "num_generations": 4,
    "gradient_accumulation_steps": 1,
    "mask_truncated_completions": True,
    "importance_sampling_correction": False,
}
VARIABLES = {
    "PART": "1",
    "STEPS": "19699",
    "LORA_R": "1",
    "BETA": "0.02",
    "MAX_GRAD_NORM": "0.05",
    "REWARD_NAME": "arc-v2-no-pixel-score",
    "NUM_GENERATIONS": "32",
    "ACUM_STEPS": "4",
    "LEARNING_RATE": "4e-6",
    "REPETITION_PENALTY": "1.02",
    "EPOCHS": "1",
    "N_CPUS": "20",
    "EXPERIMENT_NAME": "lr4e-6_r1",
}
MODEL = "data/Llama-3.1-ARC-Potpourri-Induction-8B"


def words(line: str) -> list[str]:
    """Arguments after the script's name, as a shell passes them on."""
    return shlex.split(Template(line).substitute(VARIABLES))[2:]


def test_the_published_command_for_sampling() -> None:
    stage = cli.parse(["sample", *words(SAMPLE)])
    assert (stage.n_predictions, stage.batch_size, stage.use_data_augmentation) == (8, 8, True)
    assert (stage.dataset_path, stage.output) == (Path("data/dataset_10k_part1.json.gz"), Path("data/part1"))
    # the script's defaults, except for the folder of its model
    assert stage.model_path == "barc0/Llama-3.1-ARC-Potpourri-Induction-8B"
    assert (stage.max_model_len, stage.max_output_tokens, stage.lora_path) == (9700, 1024, None)


def test_the_published_command_for_evaluating_a_checkpoint() -> None:
    stage = cli.parse(["sample", *words(EVALUATE)])
    assert (stage.model_path, stage.lora_path) == (MODEL, Path("data/checkpoint-19699"))
    assert (stage.n_predictions, stage.dataset_path) == (128, Path("data/arc-agi_evaluation_challenges.json"))


@pytest.mark.parametrize(
    ("line", "data_set", "settings"),
    [
        (SECOND_TURNS, "refine_dataset.json.gz", {"max_grad_norm": 0.05, "save_steps": 200}),
        (FIRST_TURNS, "dataset_100k.json.gz", {}),
    ],
)
def test_the_published_commands_for_training(line: str, data_set: str, settings: dict[str, Any]) -> None:
    stage = cli.parse(["train", *words(line)])
    assert dict_of(stage) == SCRIPT | settings | {
        "beta": 0.02,
        "rewards": ({"reward": "arc-v2-no-pixel-score", "weight": 1.0},),
        "num_generations": 32,
        "gradient_accumulation_steps": 4,
        "learning_rate": 4e-6,
        "repetition_penalty": 1.02,
        "epochs": 1,
        "scale_rewards": "batch",
        "warmup_ratio": 0.01,
    }
    assert (stage.lora_r, stage.load_in_4bit) == (1, False)
    assert (stage.max_seq_length, stage.max_completion_length) == (9700, 1024)
    assert (stage.gpu_memory_utilization, stage.n_jobs, stage.model_path) == (0.3, 20, MODEL)
    assert (stage.dataset_path, stage.output) == (Path("data", data_set), Path("data/lr4e-6_r1"))


def test_the_published_name_of_the_memory_limit_works_with_underscores_and_an_equals_sign() -> None:
    stage = cli.parse(["train", *words(DEBUG), "--code_execution_memory_limit_mb=2048"])
    assert stage.sections["sandbox"].memory_mb == 2048


def test_a_wrong_reward_is_named_with_those_that_are_known(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.parse(["train", *words(DEBUG), "--reward-name", "arc-v9"])
    (line,) = capsys.readouterr().err.splitlines()
    assert "--rewards.0: 'arc-v9'" in line and all(name in line for name in REWARDS)


def test_the_published_command_for_a_try_takes_the_scripts_defaults() -> None:
    stage = cli.parse(["train", *words(DEBUG)])
    assert dict_of(stage) == SCRIPT | {"epochs": 1}
    assert stage.lora_r == 16
    assert stage.model_path == "barc0/Llama-3.1-ARC-Potpourri-Induction-8B"
    assert (stage.max_seq_length, stage.max_completion_length) == (2048, 1024)
    assert stage.use_data_augmentation


def dict_of(stage: Any) -> Any:
    return stage.sections["grpo"].model_dump(include=set(SCRIPT))


PAIRS = [{"input": [[1] * 3] * 3, "output": [[2] * 3] * 3}, {"input": [[3] * 2], "output": [[3] * 2]}]
ONE_TASK = {"train": PAIRS, "test": PAIRS[:1]}


def test_second_turns_of_the_original_notebook_are_prompts_as_they_stand(tmp_path: Path) -> None:
    path = tmp_path / "refine_dataset.json.gz"
    with gzip.open(path, "wt") as file:
        json.dump({"a": {"prompt": "<|user|>say it again<|assistant|>", "task": ONE_TASK}}, file)
    (prompt,) = prompts_in(path, SAMPLING, PLAIN, "compact", TINY, seed=0)
    assert (prompt.task_id, prompt.turn, prompt.text) == ("a", 2, "<|user|>say it again<|assistant|>")
    assert prompt.n_tokens == 2 + len("say it again")  # two marks; other text is bytes
    assert [pair.output.tolist() for pair in prompt.detail.train] == [pair["output"] for pair in PAIRS]


def test_a_data_set_of_tasks_gives_first_turns(tmp_path: Path) -> None:
    path = tmp_path / "dataset_100k.json"
    path.write_text(json.dumps({"a": ONE_TASK}))
    (prompt,) = prompts_in(path, SAMPLING, PLAIN, "compact", TINY, seed=0)
    assert (prompt.task_id, prompt.turn, prompt.n_predictions) == ("a", 1, 1)
    assert prompt.text.startswith("<|user|>\ninput ")


@pytest.mark.parametrize(
    ("content", "place"),
    [
        ({"a": {"prompt": "x"}}, "task a: is"),
        ({"a": {"prompt": "x", "task": ONE_TASK}, "b": {"task": ONE_TASK}}, "task b: field 'prompt'"),
        ({"a": {"prompt": "x", "task": ONE_TASK}, "b": 3}, "task b: field 'prompt'"),
    ],
)
def test_a_bad_data_set_is_named_with_its_task(
    tmp_path: Path, content: dict[str, Any], place: str, wording: Wording
) -> None:
    path = tmp_path / "refine_dataset.json"
    path.write_text(json.dumps(content))
    with pytest.raises(InputError) as caught:
        list(prompts_in(path, SAMPLING, PLAIN, "compact", TINY, seed=0))
    assert str(caught.value).startswith(f"{path}: {place} ")
    wording(caught.value)


@pytest.mark.model
def test_a_data_set_of_the_original_scripts_is_sampled(tmp_path: Path) -> None:
    def task(side: int) -> dict[str, list[dict[str, list[list[int]]]]]:
        pair = {"input": [[1] * side] * side, "output": [[2] * side] * side}
        return {"train": [pair, pair], "test": [pair]}

    with gzip.open(tmp_path / "dataset_10k.json.gz", "wt") as file:
        json.dump({"small": task(3), "beyond the window": task(30)}, file)
    line = f"--dataset-path {tmp_path}/dataset_10k.json.gz --output {tmp_path} --base-model-path {TINY} "
    line += "--template compact --max-model-len 256 --max-output-tokens 4 --n-predictions 3 --batch-size 2"
    cli.parse(["sample", *shlex.split(line)]).run()
    attempts = list(records.read(tmp_path / "000.parquet", Attempt))
    assert [attempt.attempt_id for attempt in attempts] == [
        "small/turn1-000/000",
        "small/turn1-000/001",
        "small/turn1-001/000",
    ]
