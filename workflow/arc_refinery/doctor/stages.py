"""The checks for one kind of job, with small sampling and training runs of the embedded model, as real jobs run.

Each command runs in its own process, as in a job: the GPU's memory is free again afterwards, and a crash is a finding.
"""

import json
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from arc_refinery import records
from arc_refinery.config import Dtype, Experiment, Lora, ModelConfig, Needs, PolicyGradient
from arc_refinery.config.experiment import DISK_MB
from arc_refinery.config.grpo import BEST_OF
from arc_refinery.doctor import machine, server
from arc_refinery.doctor.findings import Finding, JobKind, JobReport
from arc_refinery.domains.arc.config import REWARDS, Showing, TaskSet
from arc_refinery.refining.config import Grpo, Sampling
from arc_refinery.refining.config.rewards import ATTEMPT_REWARDS
from arc_refinery.runs.project import project_files
from arc_refinery.runs.screen import own_lines

MODEL = project_files() / "workflow/models/tiny"
TEMPLATE = "compact"  # what the embedded model reads
WINDOW = 1024
N_TASKS = 12
N_TOKENS = 48
N_STEPS = 12  # GRPO steps: enough to interrupt it before the last
SAVE_STEPS = 4  # a multiple of the steps per batch of completions, at most two
TIMEOUT_SECONDS = 600  # per command
AGREEMENT = 0.75  # share of greedy answers that must be equal: in 16 bits, near ties may go either way
TOLERANCE: dict[Dtype, float] = {
    "float32": 1e-3,
    "float16": 2e-2,
    "bfloat16": 5e-2,
}  # nats per token between two samplers
EIGHT_BIT_RANK = 32  # x 128, the embedded model's width: of smaller matrices bitsandbytes keeps states in 32 bits
SAMPLER_CHECK = re.compile(r"sampler check: .*")
ERROR = re.compile(r"\b\w*(Error|Exception)(: |$)")  # the last line of a traceback


@dataclass(frozen=True, slots=True)
class FinishedCommand:
    """Exit code and output of a command."""

    code: int
    output: str

    @property
    def reason(self) -> str:
        """Exit code and last two lines of output; if an engine of vLLM died, the line above that names its error."""
        lines = own_lines(self.output)
        last_lines = lines[-2:]
        if engine_died := [i for i, line in enumerate(lines) if "See root cause above" in line]:
            errors = [line for line in lines[: engine_died[0]] if ERROR.search(line) and "root cause" not in line]
            last_lines = errors[-1:] or last_lines
        return f"exit code {self.code}: {' / '.join(last_lines)}"


def sampling(model: ModelConfig, adapter: Lora) -> Iterator[Finding]:
    """Check that the backend's greedy answers agree with transformers, without and with an adapter."""
    checks = (f"{model.backend} samples", "greedy answers agree with transformers", "an adapter changes answers")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prompts = _prompts(folder / "prompts.parquet")
        lora = _adapter(folder / "adapter", adapter)
        answers: dict[tuple[str, bool], list[records.Attempt]] = {}
        for backend in dict.fromkeys([model.backend, "transformers"]):
            for with_adapter in (False, True):
                output = folder / f"{backend}-{with_adapter}.parquet"
                ended = _run(_sample(model, backend, prompts, output, lora if with_adapter else None))
                if ended.code:
                    yield Finding(checks[0], "failed", ended.reason, "see this job's log for the whole message")
                    return
                answers[backend, with_adapter] = list(records.read(output, records.Attempt))
    plain, adapted = answers[model.backend, False], answers[model.backend, True]
    yield Finding(checks[0], "passed", f"{sum(attempt.n_tokens for attempt in plain)} tokens in {model.dtype}")
    if model.backend == "transformers":
        yield Finding(checks[1], "not applicable", "it is the backend")
    else:
        yield _agreement(checks[1], model, answers)
    n_changed = sum(attempt.completion != other.completion for attempt, other in zip(plain, adapted, strict=True))
    changed = f"{n_changed} of {len(plain)}"
    advice = "" if n_changed else "do vllm, transformers and peft have the pinned versions?"
    yield Finding(checks[2], "passed" if n_changed else "failed", changed, advice)


def _agreement(check: str, model: ModelConfig, answers: dict[tuple[str, bool], list[records.Attempt]]) -> Finding:
    n_equal, n_answers, differences = 0, 0, [0.0]
    for with_adapter in (False, True):
        pairs = zip(answers[model.backend, with_adapter], answers["transformers", with_adapter], strict=True)
        for attempt, other in pairs:
            n_answers += 1
            if attempt.completion == other.completion:
                n_equal += 1
                differences.append(abs(attempt.logprob - other.logprob) / attempt.n_tokens)
    agreement = f"{n_equal} of {n_answers} equal; log-probabilities {max(differences):.1e} nats per token apart at most"
    if n_equal >= AGREEMENT * n_answers and max(differences) <= TOLERANCE[model.dtype]:
        return Finding(check, "passed", agreement)
    advice = "do vllm and torch have the pinned versions? On a GPU, try VLLM_USE_V2_MODEL_RUNNER=0"
    return Finding(check, "failed", agreement, advice)


def training(model: ModelConfig, lora: Lora, settings: PolicyGradient) -> Iterator[Finding]:
    """Check that GRPO makes steps, vLLM gets the new weights, and an interrupted training resumes."""
    checks = ("GRPO makes steps", "new weights reach the sampler", "an interrupted training resumes")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        command = _train(model, lora, settings, _prompts(folder / "prompts.parquet"), folder)
        saved = folder / f"checkpoints/checkpoint-{SAVE_STEPS}/trainer_state.json"
        first = _run(command, interrupt_at=saved)
        # several processes end with the status of `accelerate launch`
        was_ended = (
            first.code and saved.exists() if settings.n_training_processes > 1 else first.code == -signal.SIGTERM
        )
        if not was_ended:
            advice = "see this job's log for the whole message"
            yield Finding(checks[0], "failed", first.reason, advice)
            return
        second = _run(command)
        output = first.output + second.output
        if second.code:
            yield Finding(checks[0], "failed", second.reason, "see this job's log for the whole message")
        else:
            yield Finding(checks[0], "passed", f"{N_STEPS} steps in {model.dtype}")
        sampler_check = SAMPLER_CHECK.search(output)
        if settings.sampler == "transformers":
            yield Finding(checks[1], "not applicable", "the trainer samples from its own weights")
        elif sampler_check and not second.code:
            yield Finding(checks[1], "passed", sampler_check[0].removeprefix("sampler check: "))
        else:
            advice = "do trl and vllm have the pinned versions?"
            yield Finding(checks[1], "failed", sampler_check[0] if sampler_check else "training ended before", advice)
        resumed = "from this checkpoint" in second.output
        if resumed and not second.code:
            yield Finding(checks[2], "passed", "after SIGTERM, from its last checkpoint")
        else:
            yield Finding(checks[2], "failed", "it started from scratch" if not second.code else second.reason)


def _prompts(path: Path) -> Path:
    """Write first-turn prompts of generated tasks."""
    from arc_refinery.domains.arc.domain import Domain
    from arc_refinery.domains.arc.prompts import load_template
    from arc_refinery.domains.arc.records import Prompt
    from arc_refinery.domains.arc.sources import tasks_of_set
    from arc_refinery.domains.first_turn import first_turn_prompts
    from arc_refinery.domains.prompts import Renderer

    task_set = TaskSet(name="doctor", source="generator", n_tasks=N_TASKS, max_cells=300)
    tasks = list(tasks_of_set(task_set, Counter()))
    sampling, shown = Sampling(max_output_tokens=N_TOKENS), Showing(use_data_augmentation=False)
    template, renderer = load_template(TEMPLATE), Renderer(str(MODEL))
    prompts = first_turn_prompts(Domain(), tasks, 1, sampling, template, renderer, 0, own=shown)
    records.write(path, Prompt, prompts, 0, {})
    return path


def _adapter(folder: Path, lora: Lora) -> Path:
    """Write an adapter of the config's rank, with random weights that change answers."""
    import torch

    from arc_refinery.training.adapters import open_network, write_adapter

    network = open_network(ModelConfig(path=str(MODEL), window=WINDOW), Lora(lora_r=lora.lora_r), None, 0)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, weights in network.named_parameters():
            if "lora_B" in name:
                weights.copy_(torch.randn(weights.shape, generator=generator) * 0.1)
    write_adapter(network, folder, lambda _: None)
    return folder


def _sample(model: ModelConfig, backend: str, prompts: Path, output: Path, adapter: Path | None) -> list[str]:
    """The command that samples with all settings of a model but its path and window."""
    if backend != model.backend:
        model = ModelConfig(path=model.path, window=WINDOW, dtype=model.dtype, n_threads=model.n_threads)
    changes = {"path": str(MODEL), "revision": None, "window": WINDOW, "backend": backend}
    settings = {
        "domain": "arc",
        "model": model.model_copy(update=changes).model_dump(include=set(ModelConfig.model_fields)),
        "sampling": {"max_output_tokens": N_TOKENS, "temperature": 0.0},
        "seed": 0,
    }
    given = ["--adapter", str(adapter)] if adapter else []
    return ["stage", "sample", json.dumps(settings), "--prompts", str(prompts), *given, "--output", str(output)]


def _train(model: ModelConfig, lora: Lora, settings: PolicyGradient, prompts: Path, folder: Path) -> list[str]:
    """The job that trains with all settings but those that a small run of the embedded model must replace."""
    n_processes = settings.n_training_processes
    small = settings.model_copy(
        update={
            "learning_rate": 1e-4,
            "max_steps": N_STEPS,
            "save_steps": SAVE_STEPS,
            "steps_per_generation": min(settings.steps_per_generation, 2),
            "num_generations": 4 * n_processes,
            "prompts_per_step": 1,
            "gradient_accumulation_steps": 2 * n_processes,
            "advantage": f"{BEST_OF}{min(settings.best_of, 4)}" if settings.best_of else settings.advantage,
            "n_heldout": min(settings.n_heldout, 2),
            "n_jobs": 1,
            "report_to": (),
        }
    )
    rank = max(lora.lora_r, EIGHT_BIT_RANK) if settings.optimizer == "adamw_8bit" else lora.lora_r
    adapter = lora.model_copy(update={"lora_r": rank, "target_modules": Lora().target_modules})  # the embedded model's
    kind = Grpo if isinstance(small, Grpo) else PolicyGradient  # others have keys of their own
    grpo = small.model_dump(include=set(kind.model_fields))
    if any(
        term.reward not in {*REWARDS, *ATTEMPT_REWARDS} and not term.own_code for term in getattr(small, "rewards", ())
    ):
        grpo["rewards"] = ["solved"]  # those of another domain
    trained = {"path": str(MODEL), "template": TEMPLATE, "dtype": model.dtype, "n_threads": model.n_threads}
    job = {
        "domain": "arc",
        "model": trained | {"window": WINDOW},
        "lora": adapter.model_dump(),
        "grpo": grpo,
        "guard": {},
        "refinement": {},
        "lengths": {"max_completion_length": N_TOKENS, "max_seq_length": WINDOW},
        "sandbox": {},
        "seed": 0,
    }
    written = ("checkpoints", "tensorboard", "measurements")
    paths = [word for name in written for word in (f"--{name}", str(folder / name))]
    return ["stage", "train", json.dumps(job), "--data", str(prompts), *paths, "--output", str(folder / "trained")]


def _run(words: list[str], interrupt_at: Path | None = None) -> FinishedCommand:
    """Run a command of this package; with `interrupt_at`, terminate it as soon as that file exists."""
    program = [sys.executable, "-c", "from arc_refinery.cli import main; main()"]
    with tempfile.TemporaryFile("w+") as log:
        with subprocess.Popen([*program, *words], stdout=log, stderr=subprocess.STDOUT) as running:
            deadline = time.monotonic() + TIMEOUT_SECONDS
            while running.poll() is None and time.monotonic() < deadline:
                if interrupt_at and interrupt_at.exists():
                    break
                time.sleep(0.02)
            if running.poll() is None:
                running.terminate()
        log.seek(0)
        output = log.read()
    sys.stderr.write(f"$ arc-refinery {shlex.join(words)}\n{output}\n")
    return FinishedCommand(running.returncode, output)


def examine(experiment: Experiment, job: JobKind, other: JobReport | None, results: Path) -> JobReport:
    """Check what this kind of job needs. `other`: findings of another kind of job; `results`: folder of results."""
    return JobReport.on_this_machine(job, _findings(experiment, job, other, results))


def _findings(experiment: Experiment, job: JobKind, other: JobReport | None, results: Path) -> Iterator[Finding]:
    needs = getattr(experiment.resources, job)
    has_gpu = isinstance(needs, Needs) and needs.gpus > 0
    yield machine.software(machine.pins_of(job, has_gpu))
    yield from machine.disk(needs.disk_mb if isinstance(needs, Needs) else DISK_MB, results)
    yield machine.shared_files(other)
    yield machine.fetched_files(experiment.downloads, results / experiment.experiment)
    yield machine.sandbox(experiment.sandbox)
    if job == "cpu":
        return
    gpu_findings = [*machine.gpu(needs, experiment.model.dtype), machine.compiler()] if has_gpu else []
    yield from gpu_findings or [Finding("GPU", "not applicable", "the config asks for none")]
    yield from machine.gpu_memory(experiment, job)
    if job == "sample" and experiment.model.is_served:
        yield from server.checks(experiment.model) if experiment.model.has_address else ()
        return
    if job == "sample":
        yield from machine.model_files(experiment, results / experiment.experiment)
    if any(finding.outcome == "failed" for finding in gpu_findings):
        yield Finding(job, "not applicable", "skipped, because the GPU cannot be used")
    elif job == "sample":
        yield from sampling(experiment.model, experiment.training.lora if experiment.training else Lora())
    elif experiment.training and experiment.training.grpo:
        yield from training(experiment.model, experiment.training.lora, experiment.training.grpo)
    else:
        yield Finding(job, "not applicable", "the config has no GRPO training")
