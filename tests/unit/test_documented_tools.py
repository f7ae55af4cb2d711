"""The tool and the data set that docs/tool-use.md shows, and the search in examples/: those very lines are run."""

import re
import sys
from pathlib import Path

import pytest
import yaml
from checkout import ROOT
from factories import correct_answer

from arc_refinery import cli, records
from arc_refinery.config import check_files, load_experiment, validate_experiment
from arc_refinery.jobs import Job
from arc_refinery.sandbox import Executor
from arc_refinery.tool_use import jobs
from arc_refinery.tool_use.config import ToolUse
from arc_refinery.tool_use.questions.sources import questions_of
from arc_refinery.tool_use.tools.toolbox import Toolbox

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
MAX_LINES = 40


def blocks(title: str) -> dict[str, str]:
    """The blocks of code of a section, by their languages."""
    page = (ROOT / "docs/tool-use.md").read_text()
    section = page.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    return dict(BLOCK.findall(section))


TOOL, DATA = blocks("A tool of your own"), blocks("A data set of your own")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with the files of the page."""
    for name in ("workflow", "config", "examples"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "mine").mkdir()
    files = {"atlas.py": TOOL["python"], "capitals.jsonl": DATA["json"], "capitals.yaml": DATA["yaml"]}
    for name, text in files.items():
        (tmp_path / "mine" / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("example", [TOOL, DATA], ids=["tool", "data"])
def test_they_are_short(example: dict[str, str]):
    assert len(example) == 2
    assert sum(len(text.splitlines()) for text in example.values()) <= MAX_LINES


def test_the_tools_can_be_called(executor: Executor):
    content = yaml.safe_load(Path("config/tool-use-demo.yaml").read_text()) | yaml.safe_load(TOOL["yaml"])
    experiment = validate_experiment(content, "mine.yaml", ToolUse)
    check_files(experiment, "mine.yaml")
    tools = Toolbox(experiment.tools, executor)
    assert tuple(tools.tools) == ("calculator", "capital", "note", "read_notes")
    assert [
        tools.run(name, arguments).text
        for name, arguments in (
            ("capital", {"country": "Peru"}),
            ("capital", {"country": "Peru", "spell": True}),
            ("capital", {"country": "Spain"}),
            ("note", {"text": "one"}),
            ("note", {"text": "two"}),
            ("read_notes", {}),
        )
    ] == ["Lima", "L-i-m-a", "Error: ValueError: Spain is unknown", "1 lines", "2 lines", '["one", "two"]']


def test_the_example_finds_what_its_questions_ask_for(executor: Executor):
    experiment = load_experiment(Path("examples/own-tool.yaml"), ToolUse)
    check_files(experiment, "own-tool.yaml", contents=True)
    search = Toolbox(experiment.tools, executor)
    (first, second) = questions_of(experiment.sets["harbour"], "heldout")
    built = search.run("search", {"query": first.text}).text
    assert built.startswith("[1] North lighthouse\nThe north lighthouse was built in 1871.")
    assert "[2] South lighthouse\n" in built
    keeper = search.run("search", {"query": "first keeper of the north lighthouse"}).text
    assert "Ida Berg was its first keeper" in keeper
    assert correct_answer(second) not in keeper
    assert correct_answer(second) in search.run("search", {"query": "Ida Berg"}).text
    assert search.run("search", {"query": "zebra"}).text == "(no results)"


def run(monkeypatch: pytest.MonkeyPatch, stage: str, job: Job, *flags: str) -> None:
    words = ["arc-refinery", "stage", stage, job.settings, "--tuning", job.tuning, *flags]
    monkeypatch.setattr(sys, "argv", words)
    cli.main()


@pytest.mark.model
@pytest.mark.usefixtures("on_a_cpu")
def test_the_embedded_model_answers_the_questions_with_the_tool(monkeypatch: pytest.MonkeyPatch):
    """The commands of the rules, one after the other."""
    experiment = load_experiment(Path("mine/capitals.yaml"), ToolUse)
    check_files(experiment, "mine/capitals.yaml")
    questions = ["--output", "questions.parquet"]
    run(monkeypatch, "questions", jobs.questions(experiment, "capitals"), "--split", "heldout", *questions)
    lengths = {}
    for arm in ("untrained", "without-tools"):
        flags = ["--questions", "questions.parquet", "--output", f"{arm}.parquet"]
        run(monkeypatch, "episodes", jobs.episodes(experiment, "capitals", arm), *flags)
        episodes = list(records.read(Path(f"{arm}.parquet"), records.Episode))
        assert [episode.question_id for episode in episodes] == [
            f"capitals/capitals-{n:06d}" for n in (1, 2) for _ in range(8)
        ]
        lengths[arm] = episodes[0].n_prompt_tokens
    assert lengths["untrained"] > lengths["without-tools"]  # the prompt shows the tool
