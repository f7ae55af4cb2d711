"""Checks of the machine itself: software, GPU, compiler, disk, files that jobs share, the sandbox."""

import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, distributions, requires, version
from importlib.util import find_spec
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from arc_refinery.config import Experiment, Needs, Sandbox
from arc_refinery.doctor.findings import CheckOutcome, Finding, JobKind, JobReport
from arc_refinery.errors import InputError
from arc_refinery.models import hub
from arc_refinery.sampling.checks import check_answers_end, check_folder
from arc_refinery.sampling.gpu_memory import counts

GB = 10**9
MIN_FREE = GB  # bytes for results; with less, hardly any stage could write its file
MAX_NAMED = 4  # packages that a finding names
BFLOAT16_CAPABILITY = 8  # Ampere


def software(pins: Path) -> Finding:
    """Check that the packages of a pinned set are installed in those versions; other packages do not matter.

    Outside the environments of a checkout, the ranges count that `pip install` has gone by.
    """
    made_by_make = Path(sys.prefix).is_relative_to(Path(__file__).parents[3])
    if not made_by_make and not pins.exists():
        return _ranges()
    check = f"packages are as pinned in {pins}"
    try:
        lines = [line.strip() for line in pins.read_text().splitlines()]
    except OSError as error:
        raise InputError(f"{pins}: cannot be read ({error.strerror}); run this in the checkout") from None
    pinned = dict(line.split("==") for line in lines if line and not line.startswith("#"))
    # suffixes such as `+cpu` name a build of the same version
    installed = {canonicalize_name(package.name): package.version.partition("+")[0] for package in distributions()}
    missing = [name for name in pinned if canonicalize_name(name) not in installed]
    other = {
        name: (installed[canonicalize_name(name)], wanted)
        for name, wanted in pinned.items()
        if name not in missing and installed[canonicalize_name(name)] != wanted
    }
    if not missing and not other:
        return Finding(check, "passed", f"all {len(pinned)}, Python {platform.python_version()}")
    if not made_by_make:
        return _ranges()
    faults = [f"{name} {version}, pinned {wanted}" for name, (version, wanted) in other.items()]
    faults += [f"{name} is missing" for name in missing]
    return Finding(check, "failed", _first(faults), "recreate this environment: docs/run.md")


def _ranges() -> Finding:
    """Check the versions of what the package requires; of an extra, only what is installed."""
    faults, n_checked = [], 0
    for requirement in map(Requirement, requires("arc-refinery") or ()):
        is_extra = requirement.marker and "extra" in str(requirement.marker)
        if requirement.marker and not is_extra and not requirement.marker.evaluate():
            continue
        try:
            installed = version(requirement.name)
        except PackageNotFoundError:
            faults += [] if is_extra else [f"{requirement.name} is missing"]
            continue
        n_checked += 1
        if not requirement.specifier.contains(installed, prereleases=True):
            faults.append(f"{requirement.name} {installed}, expected {requirement.specifier}")
    check, advice = "packages are in the ranges of arc-refinery", "pip install --upgrade <the folder of arc-refinery>"
    if faults:
        return Finding(check, "failed", _first(faults), advice)
    return Finding(check, "passed", f"all {n_checked}, Python {platform.python_version()}")


def _first(faults: Sequence[str]) -> str:
    more = f", and {len(faults) - MAX_NAMED} more" if len(faults) > MAX_NAMED else ""
    return ", ".join(faults[:MAX_NAMED]) + more


def pins_of(job: JobKind, wants_gpu: bool) -> Path:
    """Return the pinned set in envs/ for a job's environment."""
    if job == "cpu" or not wants_gpu:
        return Path("envs/cpu.txt")
    return Path("envs/gpu-unsloth.txt" if find_spec("unsloth") else "envs/gpu.txt")


def gpu(needs: Needs, dtype: str) -> Iterator[Finding]:
    """Check that there is a GPU with a driver for this torch, as large as asked for, that computes in `dtype`."""
    import torch

    checks = ("torch is built for CUDA", "the driver supports this CUDA", "GPUs are as large as asked for")
    if torch.version.cuda is None:
        advice = "install it from PyPI's index, not from a folder of wheels: docs/run.md"
        yield Finding(checks[0], "failed", f"torch {torch.__version__} is built for CPUs", advice)
        return
    yield Finding(checks[0], "passed", f"torch {torch.__version__}, CUDA {torch.version.cuda}")
    driver = _driver()
    if not torch.cuda.is_available():
        advice = (
            f"does `nvidia-smi` show a GPU here, with a driver for CUDA {torch.version.cuda}, and does "
            "CUDA_VISIBLE_DEVICES name it?"
        )
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "not set")
        yield Finding(checks[1], "failed", f"no GPU; {driver}; CUDA_VISIBLE_DEVICES: {visible}", advice)
        return
    yield Finding(checks[1], "passed", driver)
    gpus = [torch.cuda.get_device_properties(number) for number in range(torch.cuda.device_count())]
    texts = [f"{gpu.name}, {gpu.total_memory / 2**20:.0f} MB" for gpu in gpus]
    large = [gpu for gpu in gpus if gpu.total_memory / 2**20 >= needs.gpu_mem_mb]
    if len(large) >= needs.gpus:
        yield Finding(checks[2], "passed", "; ".join(texts))
    else:
        wanted = f"; expected {needs.gpus} with {needs.gpu_mem_mb} MB (gpus, gpu_mem_mb)"
        yield Finding(checks[2], "failed", "; ".join(texts) + wanted, "pin larger machines: requirements (docs/run.md)")
    if dtype == "bfloat16":  # torch also says yes where it only emulates it, and vLLM refuses that
        old = [gpu.name for gpu in gpus if gpu.major < BFLOAT16_CAPABILITY]
        outcome: CheckOutcome = "failed" if old else "passed"
        capabilities = ", ".join(f"{gpu.major}.{gpu.minor}" for gpu in gpus)
        advice = "pin newer machines, or set model.dtype to float16" if old else ""
        yield Finding("GPUs compute in bfloat16", outcome, f"compute capability {capabilities}, expected 8.0", advice)


def gpu_memory(experiment: Experiment, job: JobKind) -> Iterator[Finding]:
    """Check that the experiment's jobs fit the GPUs that it asks for, by counting, not by running."""
    try:
        memory = counts(experiment)
    except InputError as error:
        yield Finding("GPU memory, counted", "not applicable", str(error))
        return
    for count in memory:
        if count.job.startswith("sample") == (job == "sample"):
            outcome: CheckOutcome = "failed" if count.faults else "passed"
            yield Finding(f"GPU memory of {count.job}, counted", outcome, count.summary, "; ".join(count.faults))


def _driver() -> str:
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        output = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    except (OSError, subprocess.SubprocessError) as error:
        return f"nvidia-smi failed: {error}"
    return f"driver {', '.join(dict.fromkeys(output.split()))}"


def compiler() -> Finding:
    """Check for a C compiler and Python's headers, which Triton needs (vLLM and Unsloth use it on a GPU)."""
    check = "a C compiler and Python's headers"
    compilers = [os.environ.get("CC", ""), "gcc", "clang"]
    path_of_compiler = next((path for name in compilers if name and (path := shutil.which(name))), None)
    header = Path(sysconfig.get_path("include"), "Python.h")
    if path_of_compiler and header.exists():
        return Finding(check, "passed", f"{path_of_compiler}, {header}")
    missing = [
        *([] if path_of_compiler else ["no gcc, no clang, and CC names no compiler"]),
        *([] if header.exists() else [f"no {header}"]),
    ]
    advice = "install gcc and python3-dev, or set CC to a compiler where Snakemake is started: the profiles pass it on"
    return Finding(check, "failed", "; ".join(missing), advice)


def disk(scratch_mb: int, results: Path) -> Iterator[Finding]:
    """Check the free space for results and for scratch files."""
    temporary = Path(tempfile.gettempdir())
    for what, folder, wanted in (("results", results, MIN_FREE), ("scratch", temporary, scratch_mb * 2**20)):
        free = shutil.disk_usage(folder).free
        space = f"{folder}: {free / GB:.1f} GB free"
        if free >= wanted:
            yield Finding(f"disk for {what}", "passed", space)
        else:
            advice = "make room"
            if what == "scratch":
                advice += (
                    ", pin other machines (requirements), or, except on HTCondor, which sets it itself, set TMPDIR"
                )
            yield Finding(f"disk for {what}", "failed", f"{space}, expected {wanted / GB:.1f} GB", advice)


def shared_files(report: JobReport | None) -> Finding:
    """Report whether this job read the file of another job, on the same file system as results."""
    check = "files of other jobs can be read"
    if report is None:
        return Finding(check, "not applicable", "this is the only job")
    return Finding(check, "passed", f"those of `{report.job}` on {report.host}, read on {platform.node()}")


def fetched_files(downloads: Sequence[hub.Download], results: Path) -> Finding:
    """Check that this machine sees the files fetched from the hub; `results` is the experiment's folder."""
    check = "files from the hub can be read"
    if not downloads:
        return Finding(check, "not applicable", "the config names no hub files")
    folders = [hub.fetched_folder(results, download) for download in downloads]
    if not any(hub.record_of(folder).exists() for folder in folders):
        return Finding(check, "not applicable", "nothing is fetched yet: snakemake --cores 1 --until fetch")
    folders = [folder for folder in folders if hub.record_of(folder).exists()]
    try:
        lost = [str(folder / name) for folder in folders for name in hub.out_of_reach(folder)]
    except InputError as error:
        return Finding(check, "failed", str(error), "remove that file: the next run fetches again")
    if not lost:
        return Finding(check, "passed", ", ".join(map(str, folders)))
    advice = f"HF_HOME must be on a file system that all machines share; or delete {results}/fetched to fetch again"
    return Finding(check, "failed", f"{len(lost)} files are missing here, {lost[0]} first", advice)


def model_files(experiment: Experiment, results: Path) -> Iterator[Finding]:
    """Check that the files in the model's folder are those of one model, and that its answers end.

    They do if the token with which the chat template ends an answer ends a completion.
    """
    from arc_refinery.models.tokenizers import load_tokenizer

    checks = ("the model's files belong together", "the model's answers end")
    download = experiment.model.download
    folder = hub.fetched_folder(results, download) if download else Path(experiment.model.path)
    if not folder.is_dir():
        yield from (Finding(check, "not applicable", f"there is no {folder} yet") for check in checks)
        return
    try:
        check_folder(experiment.model.model_copy(update={"path": str(folder)}))
        yield Finding(checks[0], "passed", f"settings, names of weights and tokenizer in {folder}")
    except InputError as error:
        yield Finding(checks[0], "failed", str(error), "download the model again, or correct model.path")
    if not experiment.ends_with_answer:
        yield Finding(checks[1], "not applicable", "jobs with tools check generation.stop_token instead")
        return
    try:
        check_answers_end(load_tokenizer(str(folder)))
        yield Finding(checks[1], "passed", f"the chat template in {folder} and the ends of completions agree")
    except InputError as error:
        yield Finding(checks[1], "failed", str(error), "correct a copy of the folder, and set model.path to it")


def sandbox(settings: Sandbox) -> Finding:
    """Check that the sandbox contains hostile programs on this machine."""
    from arc_refinery.sandbox.surroundings import self_check, surroundings

    check = "the sandbox keeps its promises"
    try:
        with settings.executor(n_jobs=1) as executor:
            trials = self_check(executor)
    except InputError as error:
        return Finding(check, "failed", str(error), "pin other machines for these jobs: requirements")
    broken = [f"{trial.promise}: {trial.result}" for trial in trials if not trial.is_kept]
    if not broken:
        around = surroundings(settings.limits(), n_jobs=1)
        if wrong := [f"{trial.promise}: {trial.result}" for trial in around if not trial.is_kept]:
            advice = "raise the limits of these jobs on the cluster, or lower those of the section `sandbox`"
            return Finding(check, "failed", "; ".join(wrong), advice)
        return Finding(check, "passed", f"{len(trials)} hostile programs, {len(around)} properties of the machine")
    advice = "with sandbox.allow_without_seccomp, programs can access all that the user can; set it to false to be safe"
    return Finding(check, "failed", "; ".join(broken), advice)
