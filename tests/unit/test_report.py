"""A whole report of a small experiment that was made by hand: every figure below can be counted in `ANSWERS`."""

import dataclasses
import json
import re
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from checkout import ROOT
from factories import ARC, make_task
from handmade import graded, prompt, sampled_with
from jinja2 import Template
from messages import Wording, line_with

from arc_refinery import config, records
from arc_refinery.arc.grids import UNKNOWN
from arc_refinery.arc.tasks import Pair, Task
from arc_refinery.branch_files import BranchFiles
from arc_refinery.domains.arc.config import ArcExperiment
from arc_refinery.domains.arc.records import Attempt, Prompt, Verdict
from arc_refinery.models.chat import Message
from arc_refinery.records import RecordError
from arc_refinery.refining.graded import read_attempts
from arc_refinery.refining.report import gallery
from arc_refinery.reporting.kind import reported
from arc_refinery.reporting.publish import Attachments, publish
from arc_refinery.reporting.report import compose, write_report

# What each attempt gave: S solves all pairs, T the train pairs only, w wrong in one of four cells, e error, n no code.
ANSWERS = {
    "turn1": {"a": "wwSw", "b": "wwww", "c": "Swww", "d": "nnee"},
    "refine-base-turn2": {"a": "ww", "b": "ww", "c": "wT"},
    "refine-trained-turn2": {"a": "Sw", "b": "wS", "c": "ww"},
}
PROGRAM = "def transform(grid):\n    return grid + 0\n"


def experiment(
    n_shards: int = 1, arms: tuple[str, ...] = ("independent", "refine-base", "refine-trained")
) -> ArcExperiment:
    turns = {
        "independent": [{"n_predictions": 4}],
        "refine-base": [{"n_predictions": 2}, {"n_predictions": 2}],
        "refine-trained": [{"n_predictions": 2}, {"n_predictions": 2, "adapter": "trained"}],
    }
    task_set = {"name": "small", "source": "generator", "n_tasks": 4, "shards": n_shards, "caveat": "Made by hand."}
    settings = {
        "experiment": "tiny",
        "model": {"path": "./models/m", "template": "compact", "window": 100},
        "problems": {"source": "generator"},
        "parts": {"tasks_per_part": 5, "shards_per_part": 1},
        "sampling": {"max_output_tokens": 16},
        "training": {"grpo": {"learning_rate": 1e-3}, "max_completion_length": 16, "max_seq_length": 100},
        "evaluation": {
            "sets": [task_set],
            "arms": [{"name": name, "turns": turns[name]} for name in arms],
        },
    }
    return config.validate_experiment(settings, "test", ArcExperiment)


def attempt_and_verdict(task_id: str, branch: str, index: int, letter: str) -> tuple[Attempt, Verdict]:
    completion = "no idea" if letter == "n" else f"```python\n{PROGRAM}```"
    attempt, verdict = graded(task_id, branch, index, letter)
    error = ("TypeError: bad operand (line 2)", "KeyError (line 3)")[index % 2] if letter == "e" else ""
    return (
        dataclasses.replace(attempt, completion=completion, n_tokens=10, logprob=-1.0),
        dataclasses.replace(verdict, error=error),
    )


def said(task: str, turn: int) -> tuple[Message, ...]:
    answered = Message(role="assistant", content="answer"), Message(role="user", content=f"feedback on {task}")
    return (Message(role="user", content=f"task {task}"), *(answered if turn == 2 else ()))


def write_branch(
    folder: Path, branch: str, answers: Mapping[str, str], n_shards: int, notes: Mapping[str, Any]
) -> None:
    turn = 1 if branch == "turn1" else 2
    prompts = [
        prompt(task, branch, n, 2, messages=said(task, turn))
        for task in answers
        for n in range(len(answers[task]) // 2)
    ]
    records.write(folder / branch / "prompts.parquet", Prompt, prompts, 0, {}, lambda: dict(notes))
    for shard in range(n_shards):
        tasks = list(answers)[shard::n_shards]
        rows = [
            attempt_and_verdict(task, branch, index, letter)
            for task in tasks
            for index, letter in enumerate(answers[task])
        ]
        name = f"{shard:03d}.parquet"
        sampled = sampled_with(experiment(), "small", branch)
        attempts = [dataclasses.replace(attempt, **sampled) for attempt, _ in rows]
        records.write(folder / branch / "attempts" / name, Attempt, attempts, 0, {})
        records.write(folder / branch / "verdicts" / name, Verdict, [verdict for _, verdict in rows], 0, {})


def write_experiment(
    results: Path, n_shards: int = 1, answers: Mapping[str, Mapping[str, str]] = ANSWERS, tasks: Iterable[str] = "abcd"
) -> Path:
    folder = results / "tiny"
    records.write(folder / "tasks/small.parquet", Task, [make_task(task) for task in tasks], 0, {})
    for branch, branch_answers in answers.items():
        write_branch(
            folder / "small",
            branch,
            branch_answers,
            n_shards,
            {"n_dropped": 3, "dropped": {"2": [101, 90, 99]}, "longest_allowed": 84},
        )
    steps = [{"step": step, "reward": step / 10, "kl": 0.01 * step} for step in range(1, 21)]
    (folder / "adapters/trained").mkdir(parents=True)
    log = [*steps, {"step": 20, "train_loss": 0.5}]
    (folder / "adapters/trained/training.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in log))
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The experiment's folder, with its report beside it."""
    folder = write_experiment(tmp_path_factory.mktemp("results"))
    write_report(experiment(), folder, folder.parent / "tiny.md")
    return folder


@pytest.fixture(scope="module")
def text(folder: Path) -> str:
    return (folder.parent / "tiny.md").read_text()


def composed(settings: ArcExperiment, folder: Path) -> str:
    """The report's text alone: nothing is drawn, and nothing else is written."""
    of_kind = reported(settings, folder)
    of_kind.write_attempts()
    before = sorted(folder.rglob("*"))
    text = "\n\n".join(compose(of_kind, Attachments("tiny/report")))
    assert sorted(folder.rglob("*")) == before
    return text


def cells(text: str, start: str, header: str) -> dict[str, str]:
    """Cells of the table line that starts with `start`, by column, from the table whose header line holds `header`."""
    lines = text.splitlines()
    top = next(number for number, line in enumerate(lines) if header in line and line.startswith("|"))
    line = next(line for line in lines[top:] if line.startswith(f"| {start} |"))
    return dict(zip(lines[top].split(" | "), line.split(" | "), strict=True))


def all_files(folder: Path) -> dict[str, bytes]:
    files = [folder.parent / "tiny.md", *sorted((folder / "report").rglob("*.*"))]
    return {str(path.relative_to(folder.parent)): path.read_bytes() for path in files}


def test_table_of_arms(folder: Path):
    table = pd.read_csv(folder / "report/small-arms.csv", index_col="name")
    assert table["n_tasks"].tolist() == [4, 4, 4]
    assert table["solved"].tolist() == [2 / 4, 1 / 4, 3 / 4]
    independent = table.loc["independent"]
    assert independent["valid code"] == pytest.approx(14 / 16)
    assert independent["valid outputs"] == pytest.approx(12 / 16)
    assert independent["unique outputs"] == pytest.approx((2 / 4 + 1 / 4 + 2 / 4 + 0) / 4)
    assert independent["train_pixel_score"] == pytest.approx((10 * 0.75 + 2) / 16)
    assert independent["test_pass_rate"] == pytest.approx(2 / 16)
    base = table.loc["refine-base"]  # a wwww, b wwww, c SwwT, d nn
    assert base["train_pass_rate"] == pytest.approx(2 / 4 / 4)
    assert base["test_pass_rate"] == pytest.approx(1 / 4 / 4)
    assert base["valid code"] == pytest.approx(3 / 4)


def test_table_of_turns_is_over_the_tasks_that_had_something_to_refine(folder: Path):
    table = pd.read_csv(folder / "report/small-turns.csv", index_col="name")
    assert table["n_tasks"].to_dict() == {
        "turn 1 × 4": 4,
        "turn 1 × 2": 4,
        "turn 2 × 2 of refine-base": 3,
        "turn 2 × 2 of refine-trained (trained)": 3,
    }
    trained = table.loc["turn 2 × 2 of refine-trained (trained)"]
    assert trained["test_pass_rate"] == pytest.approx(1 / 3, abs=1e-6)
    assert trained["solved"] == pytest.approx(2 / 3, abs=1e-6)


def test_budget_curves(folder: Path):
    table = pd.read_csv(folder / "report/small-budget.csv")
    curves = {arm: rows["solved_tasks"].tolist() for arm, rows in table.groupby("arm")}
    # independent: a and c have one solving attempt of 4; refining arms: of 2 first attempts one solves c
    assert curves["independent"] == pytest.approx([0.5, 1.0, 1.5, 2.0])
    assert curves["refine-base"] == pytest.approx([0.5, 1.0, 1.0, 1.0])
    assert curves["refine-trained"] == pytest.approx([0.5, 1.0, 2.0, 3.0])
    tokens = table[table["budget"] == 4].set_index("arm")["tokens"]
    assert tokens["independent"] == 4 * (10 + 20 / 2)
    assert tokens["refine-trained"] == 2 * (10 + 20 / 2) + 2 * (10 + 40 / 2) * 3 / 4  # d spends nothing on turn 2


def primary(turn: int | None, arms: tuple[str, str] = ("refine-trained", "refine-base")) -> ArcExperiment:
    content = experiment().model_dump()
    content["evaluation"] |= {"primary": {"set": "small", "arms": arms, "turn": turn}}
    return ArcExperiment.model_validate(content)


def test_the_first_sentence_compares_second_attempts_after_and_before_training(folder: Path, wording: Wording):
    first, solved, *_ = composed(primary(2), folder).split("\n\n")[1:]
    # of two second attempts on each of a, b and c: 1, 1 and 0 are right; none without training
    assert first.startswith("**Second attempts are right in 33.3 % after training, in 0.0 % before: +33.3 points [")
    assert "does not support" in first and "3 tasks of `small`" in first
    assert "`refine-trained` solves 3 of 4 tasks, `refine-base` 1: +50.0 points [" in solved
    wording(first)
    wording(solved)


def test_the_first_sentence_compares_tasks_solved(folder: Path, wording: Wording):
    first = composed(primary(None, ("refine-trained", "independent")), folder).split("\n\n")[1]
    assert first.startswith("**`refine-trained` solves 3 of 4 tasks, `independent` 2: +25.0 points [")
    wording(first)


def test_without_a_primary_comparison_the_first_sentence_has_the_numbers_of_the_only_one(folder: Path):
    first = composed(experiment(arms=("independent", "refine-base")), folder).split("\n\n")[1]
    assert "`refine-base` solves 1 of 4 tasks, `independent` 2" in first


def test_arms_that_differ_in_more_than_training_are_named_in_the_first_sentence(folder: Path):
    content = primary(2).model_dump()
    content["evaluation"]["arms"][1]["turns"][1]["feedback"] = "none"
    first, *blocks = composed(ArcExperiment.model_validate(content), folder).split("\n\n")[1:]
    assert first.startswith(
        "**Second attempts are right in 33.3 % with `refine-trained`, in 0.0 % with `refine-base`: "
    )
    assert not any("with control" in block for block in blocks)  # nor do they show what feedback adds


def test_the_first_sentence_may_be_a_difference_of_differences(folder: Path):
    content = primary(2).model_dump()
    trained_and_base = ["refine-trained", "refine-base"]
    content["evaluation"]["comparisons"] = [trained_and_base, trained_and_base[::-1]]
    content["evaluation"]["primary"]["minus"] = trained_and_base[::-1]
    first = composed(ArcExperiment.model_validate(content), folder).split("\n\n")[1]
    assert first.startswith(  # +33.3, minus -33.3
        "**In right second attempts, `refine-trained` − `refine-base` is +33.3 points, `refine-base` − "
        "`refine-trained` is −33.3 points; the first minus the second is +66.7 points ["
    )


def test_the_first_screen_has_one_row_per_arm_and_a_repaired_program(text: str):
    first_screen = text.partition("\n## ")[0]
    rows = re.findall(r"^\| `([\w-]+)`: (.*) \| (.*) \|$", first_screen.replace("\xa0", " "), re.MULTILINE)
    assert rows == [
        ("independent", "4", "2 (50.0 %)"),
        ("refine-base", "2 + 2", "1 (25.0 %)"),
        ("refine-trained", "2 + 2", "3 (75.0 %)"),
    ]
    assert [alt for alt, _ in re.findall(r"!\[(.*?)\]\((.*?)\)", first_screen)] == [
        "Tasks solved on small (n = 4 tasks), against attempts per task; with the whole budget: "
        "independent 50.0 % [15.0, 85.0], refine-base 25.0 % [4.6, 69.9], refine-trained 75.0 % [30.1, 95.4]",
        "Task b of small: inputs, expected outputs, and outputs of the first program, right on 0 of 2 pairs; "
        "of the refined program, right on 2 of 2 pairs",
    ]
    assert first_screen.count("```python") == 2


def test_every_picture_has_a_text_of_its_own_that_names_its_set(text: str):
    pictures = dict(re.findall(r"!\[(.*?)\]\((.*?)\)", text.partition("\n## ")[2]))
    assert len(set(pictures.values())) == len(pictures)
    of_set = [alt for alt, link in pictures.items() if "/small-" in link]
    assert len(of_set) == 4 and all("small" in alt and re.search(r"\d", alt) for alt in of_set)


def test_the_set_of_the_primary_comparison_comes_first(tmp_path: Path):
    folder = write_experiment(tmp_path)
    shutil.copytree(folder / "small", folder / "other")
    shutil.copy(folder / "tasks/small.parquet", folder / "tasks/other.parquet")
    content = primary(2).model_dump()
    (small,) = content["evaluation"]["sets"]
    content["evaluation"]["sets"] = [small | {"name": "other"}, small]
    text = composed(ArcExperiment.model_validate(content), folder)
    assert re.findall(r"^## Set `(\w+)`", text, re.MULTILINE) == ["small", "other"]
    assert "| tasks solved | `small`: 4 tasks | `other`: 4 tasks |" in text


def test_solved_tasks_are_counted_with_an_interval(text: str):
    row = cells(text, "solved", "|  | `independent`")
    assert row["`independent`"].startswith("2/4 = 50.0 % [")
    assert row["`refine-trained` |"].startswith("3/4 = 75.0 % [")


def test_differences_say_that_four_tasks_prove_nothing(text: str, wording: Wording):
    wording(line_with(text.partition("## ")[0], " 3 differences"))
    sentences = [line for line in text.splitlines() if re.match("- `.*` solved ", line)]
    assert len(sentences) == 3
    (sentence,) = (
        sentence
        for sentence in sentences
        if sentence.startswith("- `refine-trained`") and "`independent` 2" in sentence
    )
    for fact in (
        "3 of 4 tasks (75.0 %)",
        "`independent` 2 (50.0 %)",
        "+25.0 points",
        "1 solved",
        " 0 by ",
        "p = 1.000",
    ):
        assert fact in sentence
    conclusions = {line.partition("**")[2] for line in sentences}
    assert len(conclusions) == 1 and all(
        "`" not in conclusion for conclusion in conclusions
    )  # none names an arm as the better one
    for line in sentences:
        wording(line)


def test_the_first_lines_count_the_tasks_without_attempts(tmp_path: Path, text: str, wording: Wording):
    assert "no attempts" not in text.partition("## ")[0]
    answers = {
        "turn1": {"a": "wwSw", "b": "wwww", "d": "nnee"},
        "refine-base-turn2": {"a": "ww"},
        "refine-trained-turn2": {},
    }
    first = composed(experiment(), write_experiment(tmp_path, answers=answers)).partition("## ")[0]
    sentences = {line.split("`")[3]: line for line in first.splitlines() if "no attempts" in line}
    assert list(sentences) == ["turn1", "refine-base-turn2"]
    assert "1 of 4 tasks" in sentences["turn1"]  # c
    assert "count as unsolved" in sentences["turn1"]
    both = sentences["refine-base-turn2"]  # one line for both arms
    assert "`refine-base-turn2`, `refine-trained-turn2`: " in both
    assert "1 to 2 of 2 tasks to refine" in both  # b, and all; d raised, so nothing can be refined
    assert "prompts are too long (90 to 101 tokens" in both
    assert "leaves 84" in both
    wording("\n".join(sentences.values()))


def test_an_arm_that_refined_nothing_says_so_on_the_first_lines(tmp_path: Path):
    answers = {"turn1": dict.fromkeys("abcd", "nSee"), "refine-base-turn2": {}, "refine-trained-turn2": {}}
    first = composed(experiment(), write_experiment(tmp_path, answers=answers)).partition("## ")[0]
    (sentence,) = (line for line in first.splitlines() if "nothing could be refined" in line)
    assert "`refine-base-turn2`, `refine-trained-turn2`" in sentence  # once for both


def test_unspent_budget_two_guesses_and_pass_at_1(text: str, wording: Wording):
    wording(line_with(text, "1 of 4 tasks in `refine-base`, 1 of 4 tasks in `refine-trained`"))
    row = cells(text, "`refine-base`", "two guesses")
    assert row["attempts per task"] == "3.5"
    assert row["completions truncated"] == f"{200 / 14:.1f} %"  # nn of d
    assert row["two guesses |"].startswith("1/4 = 25.0 %")  # c: S and T are the two guesses
    pass_at = cells(text, "turn 1 × 4", "pass@1")
    assert pass_at["pass@1 |"].startswith("12.5 %")  # 2 of 16
    assert "pass@8" not in text.partition("### Budget")[2]  # nobody drew eight


def test_solved_tasks_are_listed(text: str):
    assert "- `independent` (2): `a`, `c`" in text
    assert "- `refine-trained` (3): `a`, `b`, `c`" in text


def test_training_and_prompt_lengths(text: str):
    assert "| `trained` | 20 | 0.15 | 1.95 | +1.80 |" in text  # steps, mean of two rewards, of the last two
    row = cells(text, "`small/refine-base-turn2`", "median")
    assert (row["n"], row["median"], row["max"], row["over the window"]) == (
        "6",
        "40",
        "101",
        "1",
    )  # 3 of 40, 3 dropped
    assert (row["allowed"], row["dropped |"]) == ("84", "3 |")


def test_caveats_and_limits_are_stated(text: str, wording: Wording):
    wording(line_with(text, "> Made by hand."))
    limitations = text.partition("## Limitations\n\n")[2].partition("</details>")[0]
    assert "- `small`: Made by hand." in limitations.partition("<details>")[0]
    assert " 6 tasks" in limitations  # 2 / 2^6 = 0.03, 2 / 2^5 = 0.06
    wording(limitations)


def test_the_settings_that_differ_are_shown_as_yaml(text: str, wording: Wording):
    arms = line_with(text, "baseline is `independent`")
    assert "`independent` 4, `refine-base` 2 + 2, `refine-trained` 2 + 2" in arms
    wording(arms)
    values = yaml.safe_load(text.partition("```yaml\n")[2].partition("```")[0])
    assert values["model"] == {"path": "./models/m", "template": "compact", "window": 100}
    assert values["evaluation"]["sets"] == [{"name": "small", "source": "generator", "n_tasks": 4}]  # no caveat
    assert "sandbox" not in values and "resources" not in values
    values["parts"]["shards_per_part"] = 1  # how jobs run is not shown
    config.validate_experiment({"experiment": "tiny"} | values, "test", ArcExperiment)


def test_every_column_of_comparisons_is_explained(text: str):
    header = next(line for line in text.splitlines() if line.startswith("| arms | solved |"))
    columns = header.strip("| ").split(" | ")[1:]
    assert [column for column in columns if f"- **{column}**: " not in text] == []


def test_executing_without_seccomp_is_a_limitation(folder: Path, text: str, wording: Wording):
    allowing = experiment().model_copy(update={"sandbox": config.Sandbox(allow_without_seccomp=True)})
    unfiltered = line_with(composed(allowing, folder), "`sandbox.allow_without_seccomp`")
    assert "seccomp" not in text
    wording(unfiltered)


def test_links_lead_to_files_beside_the_report(folder: Path, text: str):
    links = re.findall(r"\]\(([^)]+)\)", text)
    assert {
        "tiny/report/small-budget.png",
        "tiny/report/small-outcomes.png",
        "tiny/report/small-pass-rates.png",
        "tiny/report/training-trained.png",
        "tiny/report/gallery/small-b.png",
    } <= set(links)
    assert all((folder.parent / link).stat().st_size for link in links)


def test_gallery_shows_tasks_of_each_class_that_have_refining_attempts(text: str, wording: Wording):
    # b is solved by refining alone; d by nobody, but it has nothing to refine
    classes = [line for line in text.splitlines() if line.startswith("**Solved ")]
    assert [re.findall("[0-9]+|none|no task", line.partition(":")[2]) for line in classes] == [
        ["1", "1"],
        ["no task"],
        ["1", "none"],
    ]
    for line in classes:
        wording(line)
    (title,) = re.findall("^#### .*", text, re.MULTILINE)
    assert title.startswith("#### `b`: ")
    wording(title)
    assert re.findall("feedback on .", text.partition("### Tasks")[2]) == ["feedback on b"]


def test_what_became_of_attempts_and_which_tasks_were_won(folder: Path, text: str):
    # two of refine-trained's six refining attempts on a, b, c are right
    correct = cells(text, "correct", "share of attempts")
    assert correct["turn 2 × 2 of `refine-trained` (trained) |"].startswith("33.3 % [")
    for kind in ("TypeError", "KeyError"):
        assert f"| {kind} | 6.2 % [" in text  # 1 of 4 on one of four tasks
    row = cells(text, "`refine-trained` against `independent`", "only the baseline")
    assert list(row.values())[1:] == ["4", "2", "1", "0", "1 |"]
    rates = pd.read_csv(folder / "report/small-pass-rates.csv", index_col=["arm", "task_id"])
    assert rates.loc[("refine-trained", "b")].tolist() == [0.0, 0.5, "only refining"]
    assert list(rates.loc["refine-base"].index) == ["a", "b", "c"]


def test_snakemakes_report_says_what_each_picture_shows(folder: Path):
    caption = Template((ROOT / "workflow/report/figure.rst").read_text())
    names = [str(path.relative_to(folder / "report").with_suffix("")) for path in (folder / "report").rglob("*.png")]
    captions = {name: caption.render(snakemake={"wildcards": {"name": name}}) for name in names}
    assert [name for name, text in captions.items() if "Lengths of prompts" in text] == ["lengths"]
    assert len(set(captions.values())) == len(names) and min(map(len, captions.values())) > 40


def test_plots_are_there_as_svg_too_without_a_date(folder: Path):
    for path in (folder / "report").glob("*.png"):
        drawing = path.with_suffix(".svg").read_text()
        assert "<svg" in drawing
        assert "dc:date" not in drawing


@pytest.mark.slow
def test_equal_results_give_equal_bytes_however_they_were_sharded(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Also where the user's matplotlibrc says something else, and where an earlier report is in the way."""
    import matplotlib

    monkeypatch.setitem(matplotlib.rcParams, "font.size", 30)
    again = write_experiment(tmp_path, n_shards=3)
    (again / "report").mkdir()
    (again / "report/old.png").write_text("from an earlier report")
    write_report(experiment(n_shards=3), again, tmp_path / "tiny.md")
    assert all_files(again) == all_files(folder)


def test_a_report_that_cannot_be_drawn_leaves_the_earlier_one(tmp_path: Path):
    def fail(_path: Path) -> None:
        raise RecordError("this table cannot be written")

    def add(files: Attachments) -> list[str]:
        return [files.add("table.csv", fail)]

    (tmp_path / "report").mkdir()
    (tmp_path / "report/old.png").write_text("from an earlier report")
    with pytest.raises(RecordError, match="this table"):
        publish(tmp_path / "tiny.md", tmp_path, add)
    assert (tmp_path / "report/old.png").exists() and not (tmp_path / "tiny.md").exists()


def test_one_arm_is_compared_with_nothing(tmp_path: Path, wording: Wording):
    folder = write_experiment(tmp_path)
    text = composed(experiment(arms=("independent",)), folder)
    assert " − `" not in text  # no difference of arms
    wording(line_with(text.partition("## Limitations")[0], "one arm"))
    wording(line_with(text, "No arm refines"))
    assert "| `trained` | 20 |" in text  # also where no arm uses what was trained


def test_an_experiment_without_training_says_so(tmp_path: Path, wording: Wording):
    folder = write_experiment(tmp_path)
    content = experiment(arms=("independent",)).model_dump() | {"training": None}
    text = composed(ArcExperiment.model_validate(content), folder)
    wording(line_with(text, "Nothing was trained"))
    assert "GRPO" not in text
    assert "`part1/training`" not in text


def test_one_task_shows_no_difference_and_has_no_interval(tmp_path: Path, wording: Wording):
    answers = {branch: {"a": letters["a"]} for branch, letters in ANSWERS.items()}
    folder = write_experiment(tmp_path, answers=answers, tasks="a")
    text = composed(experiment(), folder)
    wording(line_with(text, "One task cannot"))
    assert "[0.0, 0.0]" not in text
    assert "[100.0, 100.0]" not in text


def test_nothing_to_refine_is_reported(tmp_path: Path, wording: Wording):
    answers = {**ANSWERS, "refine-base-turn2": {}, "refine-trained-turn2": {}}
    folder = write_experiment(tmp_path, answers=answers)
    text = composed(experiment(), folder)
    wording(line_with(text, "4 of 4 tasks in `refine-trained`"))
    wording(line_with(text, "anything to refine in `refine-trained`"))
    assert cells(text, "solved", "turn 2 × 2 of `refine-base` | turn 2")["turn 2 × 2 of `refine-base`"] == "–"


def test_verdicts_of_other_attempts_are_refused(tmp_path: Path, wording: Wording):
    folder = write_experiment(tmp_path)
    _, verdict = attempt_and_verdict("a", "turn1", 0, "S")
    records.write(folder / "small/turn1/verdicts/000.parquet", Verdict, [verdict], 0, {})
    with pytest.raises(RecordError) as caught:
        write_report(experiment(), folder, tmp_path / "tiny.md")
    assert str(caught.value).startswith(f"{folder}/small/turn1/verdicts/000.parquet: 1 ")
    assert "16" in str(caught.value)
    wording(caught.value)


def test_attempts_on_unknown_tasks_are_refused(tmp_path: Path, wording: Wording):
    folder = write_experiment(tmp_path, tasks="abc")
    with pytest.raises(RecordError) as caught:
        write_report(experiment(), folder, tmp_path / "tiny.md")
    assert "task d" in str(caught.value) and f"{folder}/tasks/small.parquet" in str(caught.value)
    wording(caught.value)


def test_a_missing_training_log_is_named(tmp_path: Path, wording: Wording):
    folder = write_experiment(tmp_path)
    (folder / "adapters/trained/training.jsonl").unlink()
    with pytest.raises(RecordError) as caught:
        write_report(experiment(), folder, tmp_path / "tiny.md")
    assert str(caught.value).startswith(f"{folder}/adapters/trained/training.jsonl: ")
    wording(caught.value)
    assert not (tmp_path / "tiny.md").exists()


def test_an_attempt_without_outputs_is_drawn_with_its_reason(folder: Path, tmp_path: Path):
    ids = ["d/turn1-001/000", "d/turn1-000/000"]
    attempts = read_attempts(ARC, BranchFiles(folder / "small/turn1", 1), ids)
    assert [attempts[name].verdict.status for name in ids] == ["error", "no_code"]
    ARC.pictures.draw(make_task("d"), attempts, False, tmp_path / "d.png")
    assert (tmp_path / "d.png").read_bytes().startswith(b"\x89PNG")
    text = gallery.programs_block(ARC, attempts[ids[0]], attempts[ids[1]])
    assert text.count("```python") == 1 and PROGRAM in text


def test_an_unknown_test_output_is_drawn_as_unknown(folder: Path, tmp_path: Path):
    attempts = read_attempts(ARC, BranchFiles(folder / "small/turn1", 1), ["a/turn1-000/000", "a/turn1-000/001"])
    known_task = make_task("a")
    task = dataclasses.replace(known_task, test=(Pair(known_task.test[0].input, UNKNOWN),))
    ARC.pictures.draw(task, attempts, False, tmp_path / "unknown.png")
    ARC.pictures.draw(known_task, attempts, False, tmp_path / "known.png")
    assert (tmp_path / "unknown.png").read_bytes() != (tmp_path / "known.png").read_bytes()
