"""`arc-refinery doctor`: what it checks, what it finds wrong, and what it tells."""

import json
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from checkout import ROOT, TINY
from experiments import arguments_of

from arc_refinery.cli.doctor import Doctor
from arc_refinery.config import (
    Lora,
    ModelConfig,
    Needs,
    PolicyGradient,
    Sandbox,
    load_experiment,
    validate_experiment,
)
from arc_refinery.doctor import machine, stages
from arc_refinery.doctor.findings import Finding, JobReport, failures, findings_page, read_job_report, write_job_report
from arc_refinery.domains.arc.config import ArcExperiment
from arc_refinery.errors import InputError
from arc_refinery.models.hub import Download, fetched_folder, record_of
from arc_refinery.refining.config import Grpo
from arc_refinery.sandbox import seccomp, surroundings
from arc_refinery.sandbox.types import Trial

VERSIONS = {"Python": "3.11.7", "numpy": "2.4.6", "scipy": "1.17.1"}
PASSED = Finding("disk", "passed", "7 GB free")


def visit(job: Any, *findings: Finding, **versions: str) -> JobReport:
    return JobReport(job, f"node-of-{job}", VERSIONS | versions, list(findings))


# findings and their table


def test_findings_pass_from_job_to_job_as_a_file(tmp_path: Path):
    written = visit("cpu", PASSED, Finding("sandbox", "failed", "no filter", "pin other machines"))
    write_job_report(tmp_path / "cpu.json", written)
    assert read_job_report(tmp_path / "cpu.json") == written


@pytest.mark.parametrize("content", [None, "", "{}", '{"findings": [{"check": "disk"}]}'])
def test_findings_that_cannot_be_read_are_named(tmp_path: Path, content: str | None):
    if content is not None:
        (tmp_path / "cpu.json").write_text(content)
    with pytest.raises(InputError, match=r"cpu\.json: cannot be read as the findings of a job .* all machines share"):
        read_job_report(tmp_path / "cpu.json")


def test_the_table_has_a_row_for_each_finding_and_says_what_to_do():
    same = "programs run under the same versions everywhere"
    broken = Finding("driver", "failed", "none | found\nat all", "install one")
    page = findings_page([visit("cpu", PASSED), visit("train", broken)])
    rows = [line for line in page.splitlines() if line.startswith(("| cpu", "| train", "| all"))]
    assert rows == [
        "| cpu | disk | passed | 7 GB free |  |",
        "| train | driver | **failed** | none \\| found at all | install one |",
        f"| all | {same} | passed | Python 3.11.7, numpy 2.4.6, scipy 1.17.1 |  |",
    ]
    assert "1 of 3 checks failed. Jobs ran on: `cpu` on node-of-cpu, `train` on node-of-train." in page


def test_rewards_and_verdicts_under_two_versions_of_numpy_are_a_failure():
    (failure,) = failures([visit("cpu", PASSED), visit("train", PASSED, numpy="2.3.5")])
    assert failure.check == "programs run under the same versions everywhere"
    assert "cpu: Python 3.11.7, numpy 2.4.6" in failure.found
    assert "train: Python 3.11.7, numpy 2.3.5" in failure.found


# software


def test_the_environment_of_the_tests_is_as_pinned():
    assert machine.software(ROOT / "envs/cpu.txt").outcome == "passed"


def test_other_versions_and_missing_packages_are_named(tmp_path: Path):
    (tmp_path / "pins.txt").write_text("# a set\nNumPy==1.0\nno-such-package==2.0\n")
    findings = machine.software(tmp_path / "pins.txt")
    assert findings.outcome == "failed"
    assert ", pinned 1.0" in findings.found
    assert "no-such-package is missing" in findings.found


def test_pins_that_are_not_there_are_named(tmp_path: Path):
    with pytest.raises(InputError, match=r"pins\.txt: cannot be read .*; run this in the checkout"):
        machine.software(tmp_path / "pins.txt")


def test_where_pip_has_installed_it_the_ranges_of_the_package_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "pins.txt").write_text("numpy==1.0\n")
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    for pins in ("pins.txt", "missing.txt"):
        finding = machine.software(tmp_path / pins)
        assert (finding.outcome, finding.check) == ("passed", "packages are in the ranges of arc-refinery")
    needed = ["numpy>=2", "scipy>=99; python_version > '3'", "absent-package", 'torch>=99; extra == "gpu"']
    needed += ['absent-extra; extra == "gpu"', 'absent-backport; python_version < "3"']
    monkeypatch.setattr(machine, "requires", lambda _: needed)
    finding = machine.software(tmp_path / "pins.txt")
    assert finding.outcome == "failed" and re.fullmatch(
        r"scipy [\d.]+, expected >=99, absent-package is missing, torch [\d.]+(\+cpu)?, expected >=99", finding.found
    )


# the GPU, which is not there: as torch would tell of it


# Output of vLLM 0.31 whose engine finds no room for its cache, shortened.
DEAD_ENGINE = """\
(EngineCore pid=23051) INFO 11-25 20:39:55 [utils.py:343] Using LBHNC KV cache layout.
(EngineCore pid=23051) ERROR 11-25 20:39:55 [core.py:1433] EngineCore failed to start.\r
(EngineCore pid=23051) ERROR 11-25 20:39:55 [core.py:1433] Traceback (most recent call last):\r
(EngineCore pid=23051) ERROR 11-25 20:39:55 [core.py:1433]     raise ValueError(\r
(EngineCore pid=23051) ERROR 11-25 20:39:55 [core.py:1433] ValueError: No available memory for the cache blocks.
(EngineCore pid=23051) INFO 11-25 20:39:58 [multiproc_executor.py:474] [shutdown] Executor: waiting for worker exit
Process EngineCore:
Traceback (most recent call last):
  File ".../vllm/v1/core/kv_cache_utils.py", line 905, in _check_enough_kv_cache_memory
    raise ValueError(
ValueError: No available memory for the cache blocks.
Traceback (most recent call last):
  File ".../vllm/v1/engine/utils.py", line 1348, in wait_for_engine_startup
    raise RuntimeError(
RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}
.../resource_tracker.py:254: UserWarning: resource_tracker: There appear to be 1 leaked shared_memory objects
  warnings.warn('resource_tracker: There appear to be %d '
"""


def test_of_a_dead_engine_the_line_with_the_cause_is_shown():
    cause = "exit code 1: ValueError: No available memory for the cache blocks."
    assert stages.FinishedCommand(1, DEAD_ENGINE).reason == cause
    worker_error = "Exception: WorkerProc initialization failed due to an exception. See stack trace for root cause.\n"
    output = DEAD_ENGINE.replace("RuntimeError: Engine", f"{worker_error}RuntimeError: Engine")
    assert stages.FinishedCommand(1, output).reason == cause


def test_without_a_dead_engine_the_last_lines_are_shown():
    assert stages.FinishedCommand(2, "a\nKeyError: 'b'\n\nc\n").reason == "exit code 2: KeyError: 'b' / c"
    killed = "(EngineCore pid=7) INFO loading\nRuntimeError: Engine core initialization failed. See root cause above."
    assert stages.FinishedCommand(1, killed).reason == f"exit code 1: {killed.replace(chr(10), ' / ')}"


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Have torch tell of GPUs with so much memory (MB)."""
    import torch

    def tell(version: str | None, *memories: int, major: int = 9) -> None:
        monkeypatch.setattr(torch.version, "cuda", version)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: bool(memories))
        monkeypatch.setattr(torch.cuda, "device_count", lambda: len(memories))
        properties = [
            SimpleNamespace(name="H100", total_memory=memory * 2**20, major=major, minor=0) for memory in memories
        ]
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda number: properties[number])

    return tell


GPU = Needs(gpus=1, gpu_mem_mb=40000)


def test_a_torch_for_cpus_is_found_where_a_gpu_is_asked_for(cuda: Callable[..., None]):
    cuda(None)
    (finding,) = machine.gpu(GPU, "float32")
    assert (finding.outcome, "is built for CPUs" in finding.found) == ("failed", True)
    assert "PyPI's index" in finding.advice


def test_a_driver_that_is_missing_is_found(cuda: Callable[..., None], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-6a96bd13")
    monkeypatch.setenv("PATH", "")
    cuda("13.0")
    built, driver = machine.gpu(GPU, "float32")
    assert (built.outcome, driver.outcome) == ("passed", "failed")
    assert driver.found.startswith("no GPU; nvidia-smi failed: ")
    assert driver.found.endswith("CUDA_VISIBLE_DEVICES: GPU-6a96bd13")


@pytest.mark.parametrize(
    ("dtype", "major", "outcomes"),
    [("bfloat16", 9, ["passed"]), ("bfloat16", 8, ["passed"]), ("bfloat16", 7, ["failed"]), ("float16", 7, [])],
)
def test_bfloat16_needs_a_gpu_that_computes_in_it(cuda: Callable[..., None], dtype: str, major: int, outcomes: Any):
    cuda("13.0", 80000, major=major)
    assert [finding.outcome for finding in machine.gpu(GPU, dtype)][3:] == outcomes


@pytest.mark.parametrize(("memories", "outcome"), [((39999,), "failed"), ((20000, 40000), "passed")])
def test_a_gpu_must_be_as_large_as_asked_for(cuda: Callable[..., None], memories: tuple[int, ...], outcome: str):
    cuda("13.0", *memories)
    assert [finding.outcome for finding in machine.gpu(GPU, "float32")] == ["passed", "passed", outcome]


def test_the_version_of_the_driver_is_shown(cuda: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\necho 580.95.05\necho 580.95.05\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    cuda("13.0", 80000)
    assert [finding.found for finding in machine.gpu(GPU, "float32")][1] == "driver 580.95.05"


def test_memory_is_counted_for_the_kind_of_job():
    content = load_experiment(ROOT / "config/multi-turn-rl.yaml").model_dump(mode="json")
    content["training"]["grpo"]["gradient_accumulation_steps"] = 1
    experiment = validate_experiment(content, "multi-turn-rl", ArcExperiment)
    (sample,), (train,) = (machine.gpu_memory(experiment, job) for job in ("sample", "train"))
    assert (sample.check, sample.outcome) == ("GPU memory of sample, counted", "passed")
    assert (train.check, train.outcome) == ("GPU memory of train trained, counted", "failed")
    assert "set training.grpo.gradient_accumulation_steps to 2" in train.advice


def test_a_compiler_is_looked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CC", raising=False)
    assert machine.compiler().outcome == "failed"
    assert "set CC to a compiler where Snakemake is started" in machine.compiler().advice
    compiler = tmp_path / "mycc"
    compiler.write_text("#!/bin/sh\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CC", str(compiler))
    assert str(compiler) in machine.compiler().found or "Python.h" in machine.compiler().found


# answers of the experiment's own model


def test_answers_of_the_experiments_model_are_checked_where_it_is(tmp_path: Path):
    content = load_experiment(ROOT / "tests/refining.yaml").model_dump(mode="json")

    def found(path: str) -> Finding:
        changed = validate_experiment(content | {"model": content["model"] | {"path": path}}, "refining", ArcExperiment)
        return [*machine.model_files(changed, tmp_path)][1]

    assert found(TINY).outcome == "passed"
    assert found("owner/model").outcome == "not applicable"
    fetched = fetched_folder(tmp_path, Download("owner/model", "model"))
    shutil.copytree(TINY, fetched)
    assert found("owner/model").outcome == "passed"
    template = (fetched / "chat_template.jinja").read_text()
    (fetched / "chat_template.jinja").write_text(template.replace("<|end|>", "<|pad|>"))
    refused = found("owner/model")
    assert (refused.outcome, "'<|pad|>' follows it" in refused.found) == ("failed", True)


def test_episodes_end_otherwise(tmp_path: Path):
    experiment = load_experiment(ROOT / "config/tool-use-demo.yaml")
    assert [finding.outcome for finding in machine.model_files(experiment, tmp_path)] == ["passed", "not applicable"]


# disk, files, sandbox


def test_a_full_disk_is_found(tmp_path: Path):
    for_results, for_scratch = machine.disk(10**9, tmp_path)
    assert (for_results.outcome, for_scratch.outcome) == ("passed", "failed")
    assert "expected 1048576.0 GB" in for_scratch.found
    assert "except on HTCondor, which sets it itself, set TMPDIR" in for_scratch.advice


def test_what_another_job_wrote_is_named():
    assert machine.shared_files(None).outcome == "not applicable"
    assert "those of `cpu` on node-of-cpu" in machine.shared_files(visit("cpu")).found


def test_files_from_the_hub_must_be_there_whole(tmp_path: Path):
    model, other = Download("owner/model", "model"), Download("owner/rows", "dataset", None, ("*",))
    assert machine.fetched_files([], tmp_path).outcome == "not applicable"
    assert "nothing is fetched yet" in machine.fetched_files([model], tmp_path).found
    folder = fetched_folder(tmp_path, model)
    folder.mkdir(parents=True)
    record_of(folder).write_text('{"files": {"config.json": 2, "weights": 7}}')
    (tmp_path / "cached").write_text("{}")
    (folder / "config.json").symlink_to(tmp_path / "cached")
    (folder / "weights").symlink_to("/no/such/cache")
    findings = machine.fetched_files([model, other], tmp_path)
    assert (findings.outcome, findings.found) == ("failed", f"1 files are missing here, {folder}/weights first")
    assert "HF_HOME" in findings.advice
    (folder / "weights").unlink()
    (folder / "weights").write_text("1234567")
    assert machine.fetched_files([model], tmp_path).outcome == "passed"
    (tmp_path / "cached").write_text("{")  # cut off
    assert machine.fetched_files([model], tmp_path).outcome == "failed"
    record_of(folder).write_text("")
    findings = machine.fetched_files([model], tmp_path)
    assert findings.outcome == "failed"
    assert findings.found.startswith(f"{record_of(folder)}: ")


@pytest.mark.slow
def test_the_sandbox_is_tried(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(surroundings, "surroundings", lambda limits, n_jobs: [Trial("Python", True, "3.11")])
    summary = "11 hostile programs, 1 properties of the machine"
    assert machine.sandbox(Sandbox()) == Finding("the sandbox keeps its promises", "passed", summary)
    with monkeypatch.context() as patch:
        rows = [Trial("memory of the cgroup", False, "100 MB for 1 programs of 512 MB")]
        patch.setattr(surroundings, "surroundings", lambda limits, n_jobs: rows)
        small = machine.sandbox(Sandbox())
    assert (small.outcome, small.found) == ("failed", "memory of the cgroup: 100 MB for 1 programs of 512 MB")
    monkeypatch.setattr(seccomp, "what_is_missing", lambda: "there is no filter")
    refused = machine.sandbox(Sandbox())
    assert (refused.outcome, "there is no filter" in refused.found) == ("failed", True)
    allowed = machine.sandbox(Sandbox(allow_without_seccomp=True))
    assert (allowed.outcome, "no network is reached" in allowed.found) == ("failed", True)


# sampling and training, in processes of their own


@pytest.mark.model
def test_sampling_is_tried_with_an_adapter():
    samples, agrees, changes = stages.sampling(ModelConfig(path=TINY, window=1024), Lora())
    assert samples.outcome == "passed"
    assert samples.found.endswith(" tokens in float32")
    assert agrees.outcome == "not applicable"
    assert changes == Finding("an adapter changes answers", "passed", "12 of 12")


@pytest.mark.model
def test_a_backend_that_is_not_there_is_a_finding(capfd: pytest.CaptureFixture[str]):
    (finding,) = stages.sampling(ModelConfig(path=TINY, window=1024, backend="vllm"), Lora())
    assert (finding.check, finding.outcome) == ("vllm samples", "failed")
    assert "backend is vllm, which is not installed here" in finding.found
    log = capfd.readouterr().err  # it has the whole command
    assert "$ arc-refinery stage sample" in log and '"backend": "vllm"' in log


def answers(completion: str, logprob: float) -> list[Any]:
    return [SimpleNamespace(completion=completion, logprob=logprob, n_tokens=10)] * 8


@pytest.mark.parametrize(
    ("theirs", "outcome"),
    [
        (answers("a", -5.0), "passed"),
        (answers("b", -5.0)[:2] + answers("a", -5.0)[2:], "passed"),
        (answers("b", -5.0)[:3] + answers("a", -5.0)[3:], "failed"),  # 5 of 8 with, 5 of 8 without an adapter
        (answers("a", -5.02), "failed"),  # 2e-3 nats a token
    ],
)
def test_two_samplers_agree_or_not(theirs: list[Any], outcome: str):
    ours = answers("a", -5.0)
    logprobs = {
        ("vllm", False): ours,
        ("vllm", True): ours,
        ("transformers", False): theirs,
        ("transformers", True): theirs,
    }
    assert stages._agreement("", ModelConfig(path=TINY, window=9, backend="vllm"), logprobs).outcome == outcome


@pytest.mark.training
def test_training_is_tried_interrupted_and_taken_up():
    larger = {"n_heldout": 8, "advantage": "best-of-8", "prompts_per_step": 16}
    settings = Grpo(learning_rate=1e-6, rollout="on-policy", **larger)
    steps, follows, resumes = stages.training(ModelConfig(path=TINY, window=1024), Lora(), settings)
    assert steps == Finding("GRPO makes steps", "passed", "12 steps in float32")
    assert follows.outcome == "not applicable"
    assert resumes == Finding("an interrupted training resumes", "passed", "after SIGTERM, from its last checkpoint")


@pytest.mark.training
def test_a_training_that_cannot_start_is_a_finding():
    settings = Grpo(learning_rate=1e-4, num_generations=4, sampler="vllm-colocate")
    (finding,) = stages.training(ModelConfig(path=TINY, window=1024), Lora(), settings)
    assert (finding.check, finding.outcome) == ("GRPO makes steps", "failed")
    assert "the package vllm is not installed here" in finding.found


# the command


def small(tmp_path: Path, **resources: dict[str, Any]) -> Path:
    content = yaml.safe_load((ROOT / "tests/refining.yaml").read_text())
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(content | {"resources": resources}))
    return tmp_path / "config.yaml"


@pytest.mark.slow
def test_a_check_that_fails_ends_the_command_after_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(machine, "MIN_FREE", 10**18)
    doctor = Doctor(configfile=small(tmp_path), jobs=("cpu",), output=tmp_path / "results/doctor.md")
    with pytest.raises(InputError, match=r"1 checks failed: disk for results\. see .*doctor\.md for what to do"):
        doctor.run()
    page = (tmp_path / "results/doctor.md").read_text()
    assert capsys.readouterr().out.strip() == page.strip()
    assert "| cpu | disk for results | **failed** |" in page


@pytest.mark.slow
def test_jobs_hand_over_their_findings_which_are_used_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(ROOT)
    findings, output = tmp_path / "cpu.json", tmp_path / "results/doctor.md"
    Doctor(configfile=small(tmp_path), jobs=("cpu",), findings=findings, output=output).run()
    assert not output.exists()
    Doctor(configfile=small(tmp_path), jobs=(), others=(findings,), output=output).run()
    assert "None of 7 checks failed." in output.read_text()
    assert not findings.exists()


def test_findings_are_of_one_kind_of_job(tmp_path: Path):
    with pytest.raises(InputError, match="--findings holds the findings of one kind of job; --jobs has 2"):
        Doctor(configfile=small(tmp_path), jobs=("cpu", "sample"), findings=tmp_path / "found.json").run()


@pytest.mark.parametrize("path", sorted((ROOT / "config").glob("*.yaml")), ids=lambda path: path.stem)
def test_the_training_of_every_config_can_be_tried(path: Path, tmp_path: Path):
    """As far as its settings go: on a GPU there would be no second chance."""
    training = load_experiment(path).training
    if training is None or training.grpo is None:
        return
    settings = training.grpo
    for changes in (
        {},
        {"unsloth": True, "loss_type": "dapo", "epsilon_high": 0.2, "scale_rewards": "batch", "kv_cache_gb": None},
    ):
        changed = settings.model_copy(update={key: value for key, value in changes.items() if hasattr(settings, key)})
        grpo = tried(changed, training.lora, tmp_path)["grpo"]
        assert (grpo.loss_type, grpo.sampler) == (changed.loss_type, settings.sampler)


# keys that a small run of the embedded model has values of its own for
SMALL = {
    "learning_rate",
    "max_steps",
    "save_steps",
    "num_generations",
    "prompts_per_step",
    "gradient_accumulation_steps",
}
SMALL |= {"n_heldout", "n_jobs", "report_to", "target_modules"}


def test_all_other_settings_of_a_training_are_tried(tmp_path: Path):
    keys = {
        "optimizer": "adamw_8bit",
        "shared_prefix": "off",
        "rollout": "on-policy",
        "advantage": "best-of-3",
        "sampler": "vllm-colocate",
        "weight_decay": 0.01,
        "steps_per_generation": 2,
        "sleep_mode": True,
    }
    settings, lora = Grpo(learning_rate=1e-6, **keys), Lora(lora_r=40, lora_alpha=3)
    job = tried(settings, lora, tmp_path)
    assert job["grpo"].model_dump(exclude=SMALL) == settings.model_dump(exclude=SMALL)
    assert job["lora"].model_dump(exclude=SMALL) == lora.model_dump(exclude=SMALL)


def test_all_settings_of_a_model_are_tried_and_its_reference_has_few(tmp_path: Path):
    model = ModelConfig(path="owner/model", window=9670, backend="vllm", dtype="bfloat16", tensor_parallel_size=2)
    own, reference = (
        arguments(stages._sample(model, backend, tmp_path / "prompts", tmp_path / "out", None))["model"]
        for backend in ("vllm", "transformers")
    )
    changes = {"path": TINY, "window": 1024}
    assert own.model_dump(include=set(ModelConfig.model_fields)) == model.model_copy(update=changes).model_dump()
    few = ModelConfig(**changes, dtype="bfloat16")
    assert reference.model_dump(include=set(ModelConfig.model_fields)) == few.model_dump()


@pytest.mark.parametrize(("rank", "tried_rank"), [(1, 32), (64, 64)])
def test_8_bit_states_are_tried_with_matrices_that_have_them(rank: int, tried_rank: int, tmp_path: Path):
    settings, lora = Grpo(learning_rate=1e-6, optimizer="adamw_8bit"), Lora(lora_r=rank)
    assert tried(settings, lora, tmp_path)["lora"].lora_r == tried_rank


def test_processes_are_tried(tmp_path: Path):
    two = tried(Grpo(learning_rate=1e-6, n_processes=2), Lora(), tmp_path)["grpo"]
    assert (two.n_processes, two.num_generations, two.gradient_accumulation_steps) == (2, 8, 4)


def tried(settings: PolicyGradient, lora: Lora, folder: Path) -> dict[str, Any]:
    """The arguments of the small training."""
    return arguments(stages._train(ModelConfig(path=TINY, window=9), lora, settings, folder / "prompts", folder))


def arguments(words: list[str]) -> dict[str, Any]:
    """The settings of a stage that it runs, validated."""
    first, stage, settings, *_ = words
    assert first == "stage"
    return arguments_of(stage, json.loads(settings))
