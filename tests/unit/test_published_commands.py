"""Command lines of the published scripts go on working after `arc-refinery sample` and `arc-refinery train`."""

import gzip
import json
import shlex
from pathlib import Path

import pytest
import tyro
from checkout import TINY

from arc_refinery import records
from arc_refinery.cli.attempts import SampleAttempts
from arc_refinery.cli.training import Train

SAMPLE = (
    "--n-predictions 8 --dataset-path /data/barc/dataset_100k.json.gz --use-data-augmentation "
    "--output-folder /predictions/2025-09-03 --lora-path /runs/grpo/checkpoint-19699 "
    "--base-model-path /models/Llama-3.1-ARC-Potpourri-Induction-8B --batch-size 4 --max-model-len 14500 "
    "--max-output-tokens 1500 --tensor-parallel-size 2 --use-4bit-quantization --gpu-memory-utilization 0.91"
)
TRAIN = (
    "--lora-r 1 --beta 0.02 --max-grad-norm 0.05 --no-load-in-4bit --reward-name arc-v2-no-pixel-score "
    "--num-generations 32 --gradient-accumulation-steps 4 --learning-rate 4e-6 --repetition-penalty 1.02 --epochs 1 "
    "--mask-truncated-completions --scale-rewards batch --gpu_memory_utilization 0.3 --warmup-ratio 0.01 "
    "--max-seq-length 9700 --max-completion-length 1024 --n-jobs 20 --save-steps 200 "
    "--model-path /models/Llama-3.1-ARC-Potpourri-Induction-8B --dataset-path /data/second-turn.parquet "
    "--output-dir /runs/grpo/lr4e-6_r1 --code-execution-memory-limit-mb 1024"
)


def test_a_published_command_for_sampling_needs_no_other_flag() -> None:
    stage = tyro.cli(SampleAttempts, args=shlex.split(SAMPLE))
    assert (stage.n_predictions, stage.batch_size, stage.use_data_augmentation) == (8, 4, True)
    assert stage.dataset_path == Path("/data/barc/dataset_100k.json.gz")
    assert stage.output_folder == Path("/predictions/2025-09-03")
    assert stage.lora_path == Path("/runs/grpo/checkpoint-19699")
    assert stage.model_path == "/models/Llama-3.1-ARC-Potpourri-Induction-8B"
    assert (stage.max_model_len, stage.max_output_tokens, stage.tensor_parallel_size) == (14500, 1500, 2)
    assert (stage.use_4bit_quantization, stage.gpu_memory_utilization) == (True, 0.91)
    assert (stage.shard, stage.n_shards) == (0, 1)  # the whole data set


def test_a_published_command_for_training_needs_no_other_flag() -> None:
    stage = tyro.cli(Train, args=shlex.split(TRAIN))
    grpo = stage.training
    assert (stage.lora.lora_r, grpo.beta, grpo.max_grad_norm, stage.lora.load_in_4bit) == (1, 0.02, 0.05, False)
    assert (grpo.reward_name, grpo.num_generations) == ("arc-v2-no-pixel-score", 32)
    assert (grpo.gradient_accumulation_steps, grpo.learning_rate) == (4, 4e-6)
    assert (grpo.repetition_penalty, grpo.epochs, grpo.mask_truncated_completions) == (1.02, 1, True)
    assert (grpo.scale_rewards, grpo.gpu_memory_utilization, grpo.warmup_ratio) == ("batch", 0.3, 0.01)
    assert (stage.lengths.max_seq_length, stage.lengths.max_completion_length) == (9700, 1024)
    assert (grpo.n_jobs, grpo.save_steps) == (20, 200)
    assert stage.model_path == "/models/Llama-3.1-ARC-Potpourri-Induction-8B"
    assert stage.dataset_path == (Path("/data/second-turn.parquet"),)
    assert stage.output_dir == Path("/runs/grpo/lr4e-6_r1")
    assert stage.code_execution_memory_limit_mb == 1024


@pytest.mark.parametrize(("stage", "line"), [(SampleAttempts, SAMPLE), (Train, TRAIN)])
def test_underscores_are_taken_for_hyphens(stage: type[SampleAttempts | Train], line: str) -> None:
    words = [word.replace("-", "_").replace("__", "--", 1) if word[:2] == "--" else word for word in shlex.split(line)]
    assert "--gpu_memory_utilization" in words
    assert tyro.cli(stage, args=words) == tyro.cli(stage, args=shlex.split(line))


@pytest.mark.model
def test_a_data_set_of_the_original_scripts_is_sampled(tmp_path: Path) -> None:
    def task(side: int) -> dict[str, list[dict[str, list[list[int]]]]]:
        pair = {"input": [[1] * side] * side, "output": [[2] * side] * side}
        return {"train": [pair, pair], "test": [pair]}

    with gzip.open(tmp_path / "dataset_10k.json.gz", "wt") as file:
        json.dump({"small": task(3), "beyond the window": task(30)}, file)
    line = f"--dataset-path {tmp_path}/dataset_10k.json.gz --output-folder {tmp_path} --base-model-path {TINY} "
    line += "--template compact --max-model-len 256 --max-output-tokens 4 --n-predictions 3 --batch-size 2"
    tyro.cli(SampleAttempts, args=shlex.split(line)).run()
    attempts = list(records.read_attempts(tmp_path / "000.parquet"))
    assert [attempt.attempt_id for attempt in attempts] == [
        "small/turn1-000/000",
        "small/turn1-000/001",
        "small/turn1-001/000",
    ]
