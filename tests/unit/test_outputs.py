"""No command replaces what it did not make: what is in the way of an output is refused before any work starts."""

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from checkout import ROOT, TINY
from factories import make_task
from messages import Wording

from arc_refinery import cli, records
from arc_refinery.arc.tasks import Task
from arc_refinery.commands import outputs
from arc_refinery.commands.flags import Command
from arc_refinery.errors import InputError
from arc_refinery.reporting import page, publish
from arc_refinery.training import checkpoints

TRAINED = ["out/", "work/", "measured"]
# The flags that each command needs, and all that it writes; a folder ends with a slash
COMMANDS: dict[str, tuple[list[str], list[str]]] = {
    "sample": (["--dataset-path", "in.parquet", "--output", "out"], ["out/000.parquet", "out/prompts.parquet"]),
    "train": (["--dataset-path", "in.parquet", "--output", "out"], ["out/", "out.checkpoints/", "out.measurements", "out.prompts.parquet"]),
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
CASES = [(name, written) for name, (_, all_written) in COMMANDS.items() for written in all_written]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def check(name: str) -> None:
    cli.parse([*name.split(), *COMMANDS[name][0]]).check_outputs()


def test_every_command_says_what_it_writes():
    assert cli.COMMANDS.keys() == COMMANDS.keys() | WRITES_NOTHING
    assert not any("output" in field for name in WRITES_NOTHING for field in cli.load(name).__annotations__)


@pytest.mark.parametrize("name", COMMANDS)
def test_nothing_is_in_the_way_of_a_first_run_or_of_one_that_left_empty_files(name: str):
    check(name)
    for written in COMMANDS[name][1]:
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


@pytest.mark.parametrize("name", COMMANDS)
def test_an_output_under_a_file_is_refused(name: str):
    words, written = COMMANDS[name]
    Path("file").touch()
    moved = [f"file/{word}" if any(path.startswith(word) for path in written) else word for word in words]
    with pytest.raises(InputError, match="file"):
        cli.parse([*name.split(), *moved]).check_outputs()


@pytest.mark.parametrize(
    "words",
    [
        ["tasks", "split", "--source", "file", "--path", "x", "--output", "y", "x"],
        ["tasks", "split", "--source", "file", "--path", "../{}/x", "--output", "x"],
        ["tasks", "evaluation", "--name", "a", "--source", "dataset", "--path", "x", "--output", "x"],
        ["tools", "questions", *QUESTIONS, "--heldout", "y", "x", "--output", "x"],
        ["train", "--dataset-path", "in", "--lora-path", "x", "--output", "x", *MODEL],
        ["train", "--dataset-path", "in", "--continue-from", "x", "--output", "x", *MODEL],
        ["execute", "--programs", "x", "--output", "x"],
        ["execute", "--programs", "x", "--output", "link"],
        ["prompts", "learn", "--messages", "x", "--output", "x"],
        ["predictions", "import", "--predictions", "a", "--tasks-path", "b", "--output", "x", "--prompts-output", "x"],
        ["sft", "--dataset-path", "in", "--learning-rate", "1", "--output", "x", "--checkpoints", "x/y", *MODEL],
        ["sft", "--dataset-path", "in", "--learning-rate", "1", "--output", "x", "--tensorboard", "x", *MODEL],
        ["train", "--dataset-path", "in", "--output", "x", "--measurements", "x.checkpoints/m", *MODEL],
        ["sft", "--dataset-path", "in", "--learning-rate", "1", "--output", "y/x", "--checkpoints", "y", *MODEL],
        ["sft", "--dataset-path", "in", "--learning-rate", "1", "--output", ".", *MODEL],
        ["sft", "--dataset-path", "in", "--learning-rate", "1", "--output", "x/..", "--checkpoints", "y", *MODEL],
        ["report", "curves", "--log", "in", "--output", "x.svg"],
    ],
)  # fmt: skip
def test_an_output_that_is_an_input_or_another_output_is_refused(words: list[str], tmp_path: Path):
    Path("link").symlink_to("x")
    with pytest.raises(InputError):
        cli.parse([word.format(tmp_path.name) for word in words]).check_outputs()


def test_a_name_of_a_set_is_not_an_input():
    write_records(Path("tasks"))
    words = ["--name", "tasks", "--source", "generator", "--n-tasks", "1", "--output", "tasks"]
    cli.parse(["tasks", "evaluation", *words]).check_outputs()


def test_the_prompts_of_the_turn_that_is_refined_are_an_input(tmp_path: Path):
    words = [*COMMANDS["prompts refine"][0], "--folder", str(tmp_path), "--output", "prompts.parquet"]
    with pytest.raises(InputError, match=r"prompts\.parquet"):
        cli.parse(["prompts", "refine", *words]).check_outputs()


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


# Seeds, which every command that has one checks in the same place


@pytest.mark.parametrize("seed", [-1, 2**32, 2**70, 20261125123456])
def test_seeds_that_the_libraries_do_not_take_are_refused_before_anything_is_done(seed: int):
    with_seed = [name for name in COMMANDS if "--seed" in _help(name)]
    assert {"sft", "train", "sample", "tools episodes", "tasks split"} <= set(with_seed)
    for name in with_seed:
        with pytest.raises((InputError, SystemExit)):
            cli.parse([*name.split(), *COMMANDS[name][0], "--seed", str(seed)])
        cli.parse([*name.split(), *COMMANDS[name][0], "--seed", str(2**32 - 1)])


def _help(name: str) -> str:
    from contextlib import redirect_stdout
    from io import StringIO

    with redirect_stdout(StringIO()) as printed, pytest.raises(SystemExit):
        cli.parse([*name.split(), "--help"])
    return printed.getvalue()
