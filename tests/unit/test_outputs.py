"""No command or stage replaces what it did not make: what is in the way of an output is refused before work starts."""

import functools
import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from checkout import ROOT, TINY
from factories import make_task
from messages import Wording

from arc_refinery import cli, outputs, records, stages
from arc_refinery.arc.tasks import Task
from arc_refinery.cli.command import Command
from arc_refinery.config import KINDS
from arc_refinery.errors import InputError
from arc_refinery.reporting import page, publish
from arc_refinery.training import checkpoints

# The flags that each command needs, and all that it writes; a folder ends with a slash
COMMANDS: dict[str, tuple[list[str], list[str]]] = {
    "sample": (["--dataset-path", "in.json", "--output", "out"], ["out/000.parquet", "out/prompts.parquet"]),
    "train": (
        ["--dataset-path", "in.json", "--output", "out"],
        ["out/", "out.checkpoints/", "out.measurements", "out.prompts.parquet"],
    ),
    "report": (
        ["--configfile", "in", "--results", "f", "--output", "out.md"],
        ["out.md", "out.html", "f/report/", "f/attempts.parquet"],
    ),
    "doctor": (["--jobs", "cpu", "--findings", "found", "--output", "out.md"], ["found", "out.md"]),
    "prompts export": (["--output", "out"], ["out/"]),
    "init": (["out"], ["out/"]),
    "prompts learn": (["--messages", "in", "--output", "out"], ["out/"]),
    "compare": (["a.csv", "b.csv", "--output", "out.md"], ["out.md", "out.html", "out.png", "out.svg"]),
    "report curves": (["--log", "in", "--output", "out.png"], ["out.png", "out.svg"]),
    "report lengths": (
        ["--prompts", "in", "--max-model-len", "9", "--output", "out"],
        [f"out/lengths.{ending}" for ending in ("md", "csv", "png", "svg")],
    ),
    "report export": (["results/mine", "--output", "out.jsonl"], ["out.jsonl"]),
    "report publish": (["results/mine/adapters/trained", "--output", "out"], ["out/"]),
    "execute": (["--programs", "in", "--output", "out"], ["out"]),
    "predictions import": (
        ["--predictions", "in", "--tasks-path", "tasks", "--output", "out", "--prompts-output", "prompts"],
        ["out", "prompts"],
    ),
    "predictions submit": (["--verdicts", "in", "--challenges", "tasks", "--output", "out"], ["out"]),
    "dev config": (["--output", "out"], ["out/schema.json"]),
    "dev new-domain": (["sums", "--output", "out"], ["out/sums/"]),
}  # fmt: skip
WRITES_NOTHING = {"tasks select", "doctor memory", "doctor power", "show", "report samples"}

ARC: dict[str, Any] = {"domain": "arc"}
TOOLS: dict[str, Any] = {"kind": "tool-use", "sandbox": {}, "seed": 0}
MODEL: dict[str, Any] = {"path": TINY, "template": "compact", "window": 9}
PROMPTS = ARC | {"model": MODEL, "sampling": {"max_output_tokens": 1}, "seed": 0}
BRANCH = {"n_shards": 1, "shards_per_grading_job": 1, "tasks_per_batch": 1, "n_considered": 1, "refinement": {}}
GENERATED = {"source": "generator"}
EPISODES = TOOLS | {
    "tools": [], "modules_of_python": False, "model": {"path": TINY, "window": 9},
    "generation": {"max_episode_tokens": 1, "max_turn_tokens": 1},
}  # fmt: skip
TRAINING = "--data in --output out --checkpoints work --measurements measured --tensorboard curves"
ADAPTER = ARC | {"lora": {}, "seed": 0}
# The settings and flags that each stage needs, and all that it writes
STAGES: dict[str, tuple[dict[str, Any], str, list[str]]] = {
    "fetch": ({"download": {"repository": "a/b", "kind": "model"}}, "--output out", ["out.json"]),
    "tasks": (
        ARC | {"problems": GENERATED, "sandbox": {}, "tasks_per_part": 1, "seed": 0},
        "--output one two",
        ["one", "two"],
    ),
    "evaluation_tasks": (
        ARC | {"task_set": GENERATED | {"name": "a", "n_tasks": 1}, "sandbox": {}},
        "--output out",
        ["out"],
    ),
    "overlap": (ARC, "--trained in --evaluated other --output out", ["out"]),
    "first_prompts": (PROMPTS | {"branch": "b"}, "--tasks in --output out", ["out"]),
    "sample": (PROMPTS | {"model": {"path": TINY, "window": 9}}, "--prompts in --output out", ["out"]),
    "break_programs": (
        PROMPTS | {"sandbox": {}, "include_errors": False},
        "--tasks in --prompts there --output out",
        ["there", "out"],
    ),
    "grade": (ARC | {"sandbox": {}, "seed": 0}, "--attempts in --tasks tasks --output out", ["out"]),
    "refining_prompts": (
        PROMPTS | BRANCH | {"branch": "b", "feedback": "real", "select": {}},
        "--prompts in --output out",
        ["out"],
    ),
    "reference_logprobs": (
        ARC | {"model": MODEL, "sandbox": {}},
        "--tasks in --prompts there --output out",
        ["out"],
    ),
    "demonstrations": (
        ARC | BRANCH | {"model": MODEL, "demonstrations": {}, "sandbox": {}, "max_completion_length": 1, "seed": 0},
        "--tasks in --prompts there --output out",
        ["out"],
    ),
    "sft": (
        ADAPTER | {"model": {"path": TINY, "window": 9}, "sft": {"learning_rate": 1}},
        TRAINING,
        ["out/", "work/", "measured"],
    ),
    "train": (
        ADAPTER | {"model": MODEL, "grpo": {"learning_rate": 1}, "guard": {}, "refinement": {}, "sandbox": {}}
        | {"lengths": {"max_seq_length": 9, "max_completion_length": 1}},
        TRAINING,
        ["out/", "work/", "measured"],
    ),
    "questions": (
        {"kind": "tool-use", "sandbox": {}, "questions": GENERATED | {"name": "a", "domain": "gsm8k", "n_tasks": 9}},
        "--split train --output out",
        ["out"],
    ),
    "conversations": (
        EPISODES | {"tools_of_sets": {}, "without_tools": 0, "n_questions": None},
        "--questions in --output out",
        ["out"],
    ),
    "episodes": (
        EPISODES | {"files": None, "given": "own", "n_predictions": 1, "questions_per_batch": 1},
        "--questions in --output out",
        ["out"],
    ),
}  # fmt: skip
WRITTEN = {name: written for name, (_, written) in COMMANDS.items()}
WRITTEN |= {f"stage {name}": written for name, (*_, written) in STAGES.items()}
CASES = [(name, path) for name, written in WRITTEN.items() for path in written]


class Started(Exception):
    """All checks are passed."""


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def words_of(name: str) -> list[str]:
    """The flags that a command or a stage needs."""
    return STAGES[name.removeprefix("stage ")][1].split() if name.startswith("stage ") else COMMANDS[name][0]


def check(name: str, words: list[str] | None = None, **settings: Any) -> None:
    """Check the outputs of a command or a stage, by default with the words that it needs."""
    words = words_of(name) if words is None else words
    if not name.startswith("stage "):
        cli.parse([*name.split(), *words]).check_outputs()
        return
    name = name.removeprefix("stage ")
    job = STAGES[name][0] | settings

    @functools.wraps(stages.load(name, job.get("kind", "refining")))
    def start(**_: Any) -> None:
        raise Started

    with pytest.MonkeyPatch.context() as patch, suppress(Started):
        patch.setattr(stages, "load", lambda *_: start)
        stages.run([name, json.dumps(job), *words])


def test_every_command_and_stage_says_what_it_writes():
    assert cli.COMMANDS.keys() == COMMANDS.keys() | WRITES_NOTHING
    assert not any("output" in field for name in WRITES_NOTHING for field in cli.load(name).__annotations__)
    assert {name for kind in KINDS for name in stages.stages_of(kind)} == STAGES.keys()


@pytest.mark.parametrize("name", WRITTEN)
def test_nothing_is_in_the_way_of_a_first_run_or_of_one_that_left_empty_files(name: str):
    check(name)
    for written in WRITTEN[name]:
        path = Path(written)
        path.parent.mkdir(exist_ok=True, parents=True)
        path.mkdir() if written.endswith("/") else path.touch()
    if name != "report":  # its outputs are in one folder
        check(name)


@pytest.mark.parametrize(("name", "written"), CASES)
def test_a_file_of_the_users_own_is_refused_and_stays(name: str, written: str, wording: Wording):
    path = Path(written, "notes.txt") if written.endswith("/") else Path(written)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("mine\n")
    with pytest.raises(InputError) as caught:
        check(name)
    assert written.rstrip("/") in str(caught.value)
    wording(caught.value)
    assert path.read_text() == "mine\n"


@pytest.mark.parametrize(("name", "written"), CASES)
def test_a_folder_instead_of_a_file_and_the_reverse_are_refused(name: str, written: str):
    path = Path(written)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch() if written.endswith("/") else path.mkdir()
    with pytest.raises(InputError, match=written.rstrip("/")):
        check(name)


@pytest.mark.parametrize("name", WRITTEN)
def test_an_output_under_a_file_is_refused(name: str):
    Path("file").touch()
    moved = [
        f"file/{word}" if any(path.startswith(word) for path in WRITTEN[name]) else word for word in words_of(name)
    ]
    with pytest.raises(InputError, match="file"):
        check(name, moved)


@pytest.mark.parametrize(
    "words",
    [
        "execute --programs x --output x",
        "execute --programs x --output link",
        "prompts learn --messages x --output x",
        "predictions import --predictions a --tasks-path b --output x --prompts-output x",
        "report curves --log in --output x.svg",
        "sample --dataset-path x/prompts.parquet.json --lora-path x/000.parquet --output x",
        "train --dataset-path x.json --output x/..",
    ],
)
def test_an_output_that_is_an_input_or_another_output_is_refused(words: str):
    Path("link").symlink_to("x")
    with pytest.raises(InputError):
        cli.parse(words.split()).check_outputs()


@pytest.mark.parametrize(
    ("stage", "changes", "flags"),
    [
        ("tasks", {"problems": {"source": "file", "path": "x"}}, "--output y x"),
        ("tasks", {"problems": {"source": "file", "path": "./link"}}, "--output x"),
        ("evaluation_tasks", {"task_set": {"name": "a", "source": "dataset", "path": "x"}}, "--output x"),
        ("first_prompts", {"model": MODEL | {"template": "x"}}, "--tasks in --output x"),
        ("questions", {}, "--split train --heldout y x --output x"),
        ("refining_prompts", {}, "--prompts x --output x"),
        ("train", {}, f"{TRAINING} --start out"),
        ("train", {}, f"{TRAINING} --before out"),
        ("train", {}, TRAINING.replace("measured", "work/m")),
        ("sft", {}, TRAINING.replace("work", "out/y")),
        ("sft", {}, TRAINING.replace("curves", "out")),
        ("sft", {}, TRAINING.replace("put out", "put work/x")),
        ("sft", {}, TRAINING.replace("put out", "put .")),
        ("sft", {}, TRAINING.replace("put out", "put x/..")),
    ],
)
def test_an_output_of_a_stage_that_is_an_input_or_another_output_is_refused(
    stage: str, changes: dict[str, Any], flags: str
):
    Path("link").symlink_to("x")
    with pytest.raises(InputError, match=r"name another output|has no name of its own"):
        check(f"stage {stage}", flags.split(), **changes)


def test_a_name_of_a_set_is_not_an_input():
    write_records(Path("tasks"))
    check("stage evaluation_tasks", ["--output", "tasks"], task_set=GENERATED | {"name": "tasks", "n_tasks": 1})


def write_records(path: Path) -> None:
    records.write(path, Task, [make_task()], 0, {})


def write_adapter(path: Path) -> None:
    path.mkdir()
    for name in (*outputs.ADAPTER[:3], ".snakemake_timestamp"):
        (path / name).touch()


def write_checkpoints(path: Path) -> None:
    checkpoints.claim(path, "0123456789abcdef")
    (path / "checkpoint-12").mkdir()
    (path / "samples-12.parquet").touch()


def write_html(path: Path) -> None:
    markdown = path.with_suffix(".md")
    markdown.write_text("# Experiment demo\n\ntext\n")
    page.write_page(markdown, path)


def draw(path: Path) -> None:
    from matplotlib.figure import Figure

    with publish.plot_style():
        figure = Figure()
        figure.subplots().plot([0, 1])
        publish.save(figure, path)


@pytest.mark.parametrize(
    ("write", "output"),
    [
        (write_records, lambda path: outputs.records_file(path, "tasks")),
        (write_adapter, outputs.adapter),
        (write_html, lambda path: outputs.page(path.with_suffix(".html"), "Experiment")),
        (draw, lambda path: outputs.picture(path)[0]),
        (draw, lambda path: outputs.picture(path)[1]),
        (
            lambda path: path.write_text('{"step": 1, "seconds/step": 2.5}\n{"st'),
            lambda path: outputs.lines(path, "step"),
        ),
        (lambda path: path.write_text('{"a": [{"attempt_1": [[0]], "attempt_2": [[0]]}]}'), outputs.submission),
    ],
)
def test_a_former_output_may_be_replaced(write: Callable[[Path], object], output: Callable[[Path], outputs.Output]):
    path = Path("out.html") if write is write_html else Path("out.png")
    write(path)
    before = output(path)
    assert before.path.exists()
    assert before.why_not_overwritable(before.path) == ""


def test_the_pages_tables_and_plots_of_the_sample_reports_are_known_as_ours():
    sample = ROOT / "docs/sample-report"
    plots_of_sample = [path for path in sample.rglob("*.png") if path.parent.name != "gallery"]
    assert plots_of_sample
    for path in sample.glob("results/*.md"):
        assert outputs.page(path, "Experiment").why_not_overwritable(path) == ""
        assert outputs.page(path, "Experiments").why_not_overwritable(path)
    for path in sample.glob("logs/*/*.md"):
        assert outputs.page(path, "Machine time").why_not_overwritable(path) == ""
    for path in plots_of_sample:
        assert outputs.picture(path)[0].why_not_overwritable(path) == ""
    for folder in sample.glob("results/*/report"):
        command = cli.parse(["report", "--configfile", "x", "--results", str(folder.parent), "--output", "out.md"])
        assert command.writes()["results"][0].why_not_overwritable(folder) == ""


def test_the_folder_of_a_report_is_known_as_ours(tmp_path: Path):
    for name in (".snakemake_timestamp", "gallery", "heldout-arms.csv", "mask.png", "mask.svg"):
        (tmp_path / "report").mkdir(exist_ok=True)
        (tmp_path / "report" / name).touch()
    cli.parse(["report", "--configfile", "x", "--results", str(tmp_path), "--output", "out.md"]).check_outputs()


def test_other_records_tables_and_pictures_are_not_ours(tmp_path: Path):
    from PIL import Image

    write_records(tmp_path / "tasks.parquet")
    pq.write_table(pa.table({"a": [1]}), tmp_path / "table.parquet")
    Image.new("RGB", (64, 64)).save(tmp_path / "photo.png")
    (tmp_path / "drawing.svg").write_text('<?xml version="1.0"?><svg/>')
    for output in (
        outputs.records_file(tmp_path / "tasks.parquet", "prompts"),
        outputs.records_file(tmp_path / "table.parquet", "tasks"),
        outputs.table(tmp_path / "tasks.parquet", ["set", "arm"]),
        *outputs.picture(tmp_path / "photo.png")[:1],
        outputs.svg(tmp_path / "drawing.svg"),
    ):
        with pytest.raises(InputError):
            Writing(output=output).check_outputs()


class Writing(Command):
    output: outputs.Output

    def writes(self) -> outputs.Outputs:
        return {"output": [self.output]}


@pytest.mark.parametrize("content", ["", "[" * 100_000, "\udc80", json.dumps([1]), json.dumps({"step2": 1})])
def test_json_of_others_is_not_ours(content: str):
    Path("file").write_bytes(b"x" if not content else content.encode(errors="surrogateescape"))
    for output in (
        outputs.lines(Path("file"), "step"),
        outputs.json_file(Path("file"), "step"),
        outputs.submission(Path("file")),
    ):
        with pytest.raises(InputError, match="file"):
            Writing(output=output).check_outputs()


# Checkpoints


@pytest.mark.parametrize("foreign", ["notes.txt", "checkpoint-12.zip", "data.parquet", "runs"])
@pytest.mark.parametrize("is_claimed", [True, False])
def test_checkpoints_are_never_removed_with_other_files(foreign: str, is_claimed: bool, tmp_path: Path):
    work = tmp_path / "work"
    if is_claimed:
        write_checkpoints(work)
    work.mkdir(exist_ok=True)
    (work / foreign).write_text("mine")
    with pytest.raises(InputError, match=foreign):
        checkpoints.claim(work, "fedcba9876543210")
    assert (work / foreign).read_text() == "mine"


def test_a_users_file_named_settings_txt_is_not_a_note_of_a_training(tmp_path: Path):
    (tmp_path / "settings.txt").write_text("lr: 0.1\n")
    with pytest.raises(InputError, match=r"settings\.txt"):
        checkpoints.claim(tmp_path, "0123456789abcdef")


def test_checkpoints_of_other_settings_are_removed_also_with_a_note_that_a_power_failure_left_as_zeros(tmp_path: Path):
    for note in (b"fedcba9876543210", bytes(16), b""):
        work = tmp_path / "work"
        write_checkpoints(work)
        (work / "settings.txt").write_bytes(note)
        checkpoints.claim(work, "0123456789abcdef")
        assert [path.name for path in work.iterdir()] == ["settings.txt"]


def test_the_end_of_a_training_removes_its_own_files_only(tmp_path: Path):
    work = tmp_path / "work"
    write_checkpoints(work)
    checkpoints.remove(work)
    assert not work.exists()
    write_checkpoints(work)
    (work / "notes.txt").write_text("written during the training")
    checkpoints.remove(work)
    assert [path.name for path in work.iterdir()] == ["notes.txt"]


def test_a_folder_of_checkpoints_that_cannot_be_written_is_an_error_of_the_user(tmp_path: Path):
    (tmp_path / "file").touch()
    for work in (tmp_path / "file", tmp_path / "file/work"):
        with pytest.raises(InputError, match="file"):
            checkpoints.claim(work, "0123456789abcdef")


# Seeds, which every stage that has one checks in the same way


@pytest.mark.parametrize("seed", [-1, 2**32, 2**70, 20261125123456])
def test_seeds_that_the_libraries_do_not_take_are_refused_before_anything_is_done(seed: int):
    with_seed = [name for name, (settings, *_) in STAGES.items() if "seed" in settings]
    assert {"sft", "train", "sample", "episodes", "tasks"} <= set(with_seed)
    for name in with_seed:
        with pytest.raises(InputError, match=f"seed is {seed};"):
            check(f"stage {name}", seed=seed)
        check(f"stage {name}", seed=2**32 - 1)
