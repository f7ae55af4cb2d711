"""Cost of the sandbox beside the same programs in this process, in `multiprocessing.Pool` and in pebble.

    python benchmarks/sandbox.py               everything, as Markdown on stdout
    python benchmarks/sandbox.py throughput    CPU and wall time per program, one worker, no program that hangs or kills
    python benchmarks/sandbox.py mix           a whole workload with hangs, memory bombs and crashes
    python benchmarks/sandbox.py latency       calls of 32 programs on an executor that stays open

Every measurement is a process of its own, which is handed all its programs and runs some of them. Its CPU time is that
of the whole tree of processes below it, read when the workers are gone; measuring 1 and 3 repetitions of the workload
and subtracting leaves out the start. Wall time is taken between a call and its answer, after a warming up.

The other pools are set up as one would for this purpose: forked workers that have numpy and `common` loaded and the
sandbox's memory limit, the time limit by setitimer in the program's own process (Pool) or by the parent (pebble).
Only the sandbox isolates programs from each other and from the machine, so its price is to be read with that in mind.
Whether the outputs are right is not checked, nor how fast they are graded; peak memory is not measured.
"""

import argparse
import ctypes
import importlib.util
import json
import multiprocessing
import os
import pickle
import platform
import resource
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from workload import BENIGN, SHARES, Kind, Sample, make, provide_common, run_in_process

from arc_refinery.sandbox import Executor, Limits, Outcome, Program, Status

LIMITS = Limits(cpu_seconds=1.0, wall_seconds=10.0, memory_mb=512)
WORKERS = 2
REPETITIONS = 3
CALL_SIZE = 32  # programs of one reward computation
START_SECONDS = 30.0  # that a measurement may take in addition: imports, reading the programs, opening the pool
CLOSING_SECONDS = 0.2  # that killed processes may take to go
WARM_UP = [
    Program(f"warm-up/{k}", "def transform(grid):\n    return grid", (np.ones((3, 3), np.uint8),)) for k in (1, 2)
]
PR_SET_CHILD_SUBREAPER = 36

Run = Callable[[Sequence[Program]], list[Outcome]]


# ------------------------------------------------------------------------------------------------ the variants


@contextmanager
def in_process(workers: int, limits: Limits) -> Iterator[Run]:
    """No protection, no second process: what the programs themselves cost."""
    yield lambda programs: [run_in_process(program) for program in programs]


@contextmanager
def standard_pool(workers: int, limits: Limits) -> Iterator[Run]:
    with multiprocessing.get_context("fork").Pool(workers, limit_memory, (limits,)) as pool:
        yield partial(pool.map, partial(run_with_timer, limits.cpu_seconds))


@contextmanager
def pebble_pool(workers: int, limits: Limits) -> Iterator[Run]:
    from pebble import ProcessExpired, ProcessPool  # type: ignore[import-not-found, unused-ignore]

    def run(programs: Sequence[Program]) -> list[Outcome]:
        futures = [pool.schedule(run_in_process, args=[program], timeout=limits.cpu_seconds) for program in programs]
        outcomes = []
        for program, future in zip(programs, futures, strict=True):
            try:
                outcomes.append(future.result())
            except TimeoutError:
                outcomes.append(Outcome(program.program_id, Status.timeout))
            except ProcessExpired:
                outcomes.append(Outcome(program.program_id, Status.crash))
        return outcomes

    context = multiprocessing.get_context("fork")
    with ProcessPool(workers, initializer=limit_memory, initargs=[limits], context=context) as pool:
        yield run


@contextmanager
def sandbox(programs_per_child: int, workers: int, limits: Limits) -> Iterator[Run]:
    with Executor(n_jobs=workers, limits=limits, programs_per_child=programs_per_child) as executor:
        yield lambda programs: list(executor.run(programs))


SANDBOXES = ("sandbox, 1 program per child", "sandbox, 32 programs per child")
VARIANTS: dict[str, Callable[[int, Limits], AbstractContextManager[Run]]] = {
    "in process": in_process,
    "multiprocessing.Pool": standard_pool,
    "pebble.ProcessPool": pebble_pool,
    SANDBOXES[0]: partial(sandbox, 1),
    SANDBOXES[1]: partial(sandbox, 32),
}


def limit_memory(limits: Limits) -> None:
    """In a new worker: without it the memory bombs would take the machine down."""
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    most = mapped + limits.memory_mb * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def run_with_timer(seconds: float, program: Program) -> Outcome:
    signal.signal(signal.SIGALRM, raise_timeout)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        return run_in_process(program)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def raise_timeout(*_: object) -> None:
    raise TimeoutError("out of time")


# ------------------------------------------------------------------------------------------------ one measurement


@dataclass(frozen=True, slots=True)
class Job:
    """Input of a measuring process: all calls, so that the start costs the same, and how many it runs."""

    variant: str
    workers: int
    limits: Limits
    calls: list[list[Sample]]
    n_calls: int


@dataclass(frozen=True, slots=True)
class Measurement:
    seconds: list[float]  # wall time of each call
    cpu_seconds: float  # CPU time of the process and all below it
    n_good_not_ok: int
    n_left_behind: int  # processes that closing the pool did not end


class DidNotFinish(Exception):
    """The measurement was ended from outside; its argument is how many processes it had below it."""


def measure(job: Job) -> Measurement:
    """In the measuring process."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # orphans stay below this process
    provide_common()
    seconds = []
    n_good_not_ok = 0
    with VARIANTS[job.variant](job.workers, job.limits) as run:
        run(WARM_UP)
        for call in job.calls[: job.n_calls]:
            start = time.perf_counter()
            outcomes = run([sample.program for sample in call])
            seconds.append(time.perf_counter() - start)
            for sample, outcome in zip(call, outcomes, strict=True):
                n_good_not_ok += sample.kind is Kind.good and outcome.status is not Status.ok
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    cpu_seconds = sum(usage.ru_utime + usage.ru_stime for usage in usages)
    time.sleep(CLOSING_SECONDS)
    return Measurement(seconds, cpu_seconds, n_good_not_ok, len(descendants(os.getpid())))


def measure_apart(job: Job, patience: float | None = None) -> Measurement:
    """`measure` in a fresh process; `DidNotFinish` when it takes more seconds than `patience`."""
    command = [sys.executable, __file__, "--measure"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as process:
        try:
            answer, _ = process.communicate(pickle.dumps(job), patience)
        except subprocess.TimeoutExpired:
            raise DidNotFinish(clear_away(process.pid)) from None
    if process.returncode:
        sys.exit(f"measuring {job.variant!r} failed, its own message is above")
    return Measurement(**json.loads(answer))


def clear_away(pid: int) -> int:
    """End a process and all below it; how many were below it."""
    os.kill(pid, signal.SIGSTOP)  # so that it replaces none of them
    below = descendants(pid)
    for each in [*below, pid]:
        with suppress(ProcessLookupError):
            os.kill(each, signal.SIGKILL)
    return len(below)


def descendants(ancestor: int) -> list[int]:
    """The living processes below this one."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended in the meantime
            state, parent = path.read_text().rpartition(")")[2].split()[:2]
            if state not in "ZX":
                children.setdefault(int(parent), []).append(int(path.parent.name))
    pids = list(children.get(ancestor, ()))
    for pid in pids:  # grows meanwhile
        pids += children.get(pid, ())
    return pids


# ------------------------------------------------------------------------------------------------ the sections


@dataclass(frozen=True, slots=True)
class Options:
    variants: tuple[str, ...]
    n_programs: int
    n_rounds: int
    n_calls: int
    seed: int


def throughput(options: Options) -> None:
    samples = make(options.n_programs, options.seed, BENIGN)
    provide_common()
    costs = [cpu_seconds_in_process(sample.program) for sample in samples]
    median = statistics.median(costs)
    cheap = [sample for sample, cost in zip(samples, costs, strict=True) if cost <= median]
    compare_throughput("Throughput", samples, options)
    compare_throughput("Throughput: the half that costs least, where overhead shows most", cheap, options)


def cpu_seconds_in_process(program: Program) -> float:
    start = time.process_time()
    run_in_process(program)
    return time.process_time() - start


def compare_throughput(title: str, samples: Sequence[Sample], options: Options) -> None:
    calls = [repetition(samples, number) for number in range(REPETITIONS)]
    cpu: dict[str, list[float]] = {variant: [] for variant in options.variants}
    wall: dict[str, list[float]] = {variant: [] for variant in options.variants}
    n_good_not_ok: Counter[str] = Counter()
    for number in range(options.n_rounds):
        for variant in options.variants:
            progress(f"{title}: round {number + 1} of {options.n_rounds}, {variant}")
            jobs = [Job(variant, 1, LIMITS, calls, n_calls) for n_calls in (1, REPETITIONS)]
            once, often = (measure_apart(job) for job in jobs)
            per_program = 1000 / len(samples)
            cpu[variant].append((often.cpu_seconds - once.cpu_seconds) / (REPETITIONS - 1) * per_program)
            wall[variant].append(sum(often.seconds) / REPETITIONS * per_program)
            n_good_not_ok[variant] += once.n_good_not_ok + often.n_good_not_ok
    rows = []
    for variant in options.variants:
        programs_alone, with_variant = (statistics.median(cpu[each]) for each in ("in process", variant))
        wall_ratio = statistics.median(wall[variant]) / statistics.median(wall["in process"])
        rows.append(
            [
                variant,
                spread(cpu[variant]),
                f"{with_variant - programs_alone:.2f}",
                f"{with_variant / programs_alone:.2f}",
                spread(wall[variant]),
                f"{wall_ratio:.2f}",
                str(n_good_not_ok[variant]),
            ]
        )
    show(
        title,
        f"{describe(samples)}; 1 worker; median (least to most) of {options.n_rounds} rounds.",
        "variant; CPU ms per program; added ms; CPU ratio; wall ms per program; wall ratio; good ones not ok",
        rows,
    )


def mix(options: Options) -> None:
    samples = make(options.n_programs, options.seed)
    rest = [sample for sample in samples if sample.kind in BENIGN]
    hang_seconds = LIMITS.cpu_seconds * sum(sample.kind in (Kind.hang, Kind.c_hang) for sample in samples) / WORKERS
    rows = []
    for variant in options.variants:
        if variant == "in process":
            continue
        progress(f"mix: {variant}")
        ideal = hang_seconds + sum(measure_apart(Job(variant, WORKERS, LIMITS, [rest], 1)).seconds)
        row = [variant, f"{ideal:.1f}"]
        try:
            done = measure_apart(Job(variant, WORKERS, LIMITS, [samples], 1), START_SECONDS + 2 * ideal)
        except DidNotFinish as error:
            rows.append([*row, "did not finish", "", "", str(error)])
            continue
        took = sum(done.seconds)
        all_ok = "no" if done.n_good_not_ok else "yes"
        rows.append([*row, f"{took:.1f}", f"{took / ideal:.2f}", all_ok, str(done.n_left_behind)])
    show(
        "A workload that hangs, bombs and crashes",
        f"{describe(samples)}; {WORKERS} workers, limit {LIMITS.cpu_seconds:g} s. Ideal: {hang_seconds:g} s for the "
        "hanging ones and what the benign ones take by themselves. "
        f"Given up after twice the ideal and {START_SECONDS:g} s for the start.",
        "variant; ideal s; wall s; ratio; all good ones ok; processes left behind",
        rows,
    )


def latency(options: Options) -> None:
    n_samples = CALL_SIZE * options.n_calls
    rows = []
    for name, samples, cpu_limits, variants in (
        ("benign", make(n_samples, options.seed, BENIGN), (1.0,), [v for v in options.variants if v != "in process"]),
        ("full mix", make(n_samples, options.seed), (1.0, 0.3), SANDBOXES),
    ):
        calls = [samples[start : start + CALL_SIZE] for start in range(0, n_samples, CALL_SIZE)]
        for cpu_limit in cpu_limits:
            for variant in variants:
                progress(f"latency: {name}, limit {cpu_limit:g} s, {variant}")
                job = Job(variant, WORKERS, replace(LIMITS, cpu_seconds=cpu_limit), calls, len(calls))
                p50, p99 = np.percentile(measure_apart(job).seconds, [50, 99])
                rows.append([variant, name, f"{cpu_limit:g}", f"{1000 * p50:.0f}", f"{1000 * p99:.0f}"])
    shares = ", ".join(f"{100 * share:g} % {kind}" for kind, share in SHARES.items())
    show(
        "Latency",
        f"{options.n_calls} calls of {CALL_SIZE} programs, one after the other; {WORKERS} workers. Mix: {shares}.",
        "variant; programs; CPU limit s; p50 ms; p99 ms",
        rows,
    )


SECTIONS = {"throughput": throughput, "mix": mix, "latency": latency}


def repetition(samples: Sequence[Sample], number: int) -> list[Sample]:
    """The samples again with other sources, so that no variant can tell that it has seen them."""
    return [
        replace(sample, program=replace(sample.program, source=f"{sample.program.source}# repetition {number}\n"))
        for sample in samples
    ]


def spread(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def describe(samples: Sequence[Sample]) -> str:
    counts = Counter(sample.kind for sample in samples)
    return f"{len(samples)} programs: " + ", ".join(f"{counts[kind]} {kind}" for kind in Kind if counts[kind])


def machine() -> str:
    models = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    model = models[0].partition(":")[2].strip() if models else platform.machine()
    cores = len(os.sched_getaffinity(0))
    versions = f"Linux {platform.release()}, Python {platform.python_version()}, numpy {np.__version__}"
    return f"{model}, {cores} cores, {versions}"


def show(title: str, caption: str, header: str, rows: Sequence[Sequence[str]]) -> None:
    columns = header.split("; ")
    lines = [columns, ["---"] + ["---:"] * (len(columns) - 1), *rows]
    print(f"## {title}\n\n{caption}\n")
    print("\n".join(f"| {' | '.join(line)} |" for line in lines), end="\n\n", flush=True)


def progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sections", nargs="*", metavar="section", help=f"{', '.join(SECTIONS)} (default: all)")
    parser.add_argument("--programs", type=int, default=1000, help="in throughput and mix (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="of throughput (default: %(default)s)")
    parser.add_argument("--calls", type=int, default=100, help="of latency (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the programs (default: %(default)s)")
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        print(json.dumps(asdict(measure(pickle.load(sys.stdin.buffer)))))
        return
    if unknown := set(arguments.sections) - set(SECTIONS):
        parser.error(f"no section is called {', '.join(sorted(unknown))}; there are {', '.join(SECTIONS)}")

    variants = tuple(VARIANTS)
    if importlib.util.find_spec("pebble") is None:
        progress("pebble is not installed and is left out; to have it: pip install -r envs/benchmarks.txt")
        variants = tuple(variant for variant in variants if variant != "pebble.ProcessPool")
    options = Options(variants, arguments.programs, arguments.rounds, arguments.calls, arguments.seed)
    print(f"{machine()}\n", flush=True)
    for section in arguments.sections or SECTIONS:
        SECTIONS[section](options)


if __name__ == "__main__":
    main()
