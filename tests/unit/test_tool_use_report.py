"""The report of tool use on episodes made by hand: figures, what is compared, transcripts, the picture of the mask."""

import itertools
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
import yaml
from checkout import TINY_TOOLS
from factories import correct_answer, make_question
from hall import wider_ends
from handmade_episodes import ANSWERS, ARMS, QUESTIONS, SETTINGS, experiment
from markdown_it import MarkdownIt
from messages import Wording, line_with

from arc_refinery import config, records
from arc_refinery.records import RecordError
from arc_refinery.records.tool_use import Episode, EpisodeMessage
from arc_refinery.reporting import page, provenance
from arc_refinery.reporting.publish import Attachments
from arc_refinery.tool_use.config import ToolUse
from arc_refinery.tool_use.report.transcripts import mask_picture


def report(results: Path, settings: ToolUse) -> None:
    from arc_refinery.reporting.report import write_report  # it imports torch

    path = results / "by-hand.md"
    write_report(settings, results / "by-hand", path)
    page.write_page(path, path.with_suffix(".html"))


def composed(results: Path, settings: ToolUse) -> str:
    """The report's text alone: nothing is drawn."""
    from arc_refinery.reporting.kind import reported
    from arc_refinery.reporting.report import compose

    of_kind = reported(settings, results / "by-hand")
    of_kind.write_attempts()
    return "\n\n".join(compose(of_kind, Attachments("by-hand/report"))) + "\n"


def test_the_settings_that_differ_are_shown_as_yaml(tmp_path: Path):
    terms = ["correct", {"reward": "length", "weight": -0.2}, {"reward": "mine.py:score", "weight": 0.5}]
    heldout = {**SETTINGS["data"]["heldout"][0], "tools": ["python", "mine/atlas.py:capital"]}
    training = {"grpo": {"learning_rate": 1e-3, "rewards": terms}}
    content = SETTINGS | {"training": training, "data": {**SETTINGS["data"], "heldout": [heldout]}}
    settings = experiment(tmp_path, settings=content)
    values = yaml.safe_load("\n".join(provenance.settings(settings)).partition("```yaml\n")[2].partition("```")[0])
    again = config.validate_experiment(
        {"experiment": settings.experiment, "kind": settings.kind} | values, "test", ToolUse
    )
    assert provenance.settings(again) == provenance.settings(settings)
    assert [term.name for term in again.rewards] == ["correct", "length", "score"]


def test_a_model_of_the_hub_is_read_where_it_was_fetched_and_its_commit_is_named(tmp_path: Path):
    model = {"path": "someone/tools", "revision": "v2", "window": 512}
    settings = experiment(tmp_path, settings=SETTINGS | {"model": model})
    folder = tmp_path / "by-hand/fetched/someone"
    folder.mkdir(parents=True)
    (folder / "tools").symlink_to(TINY_TOOLS)
    (folder / "tools.json").write_text(json.dumps({"commit": "c0ffee", "revision": "v2", "bytes": 3_400_000_000}))
    text = composed(tmp_path, settings)
    assert "| someone/tools | v2 | `c0ffee` | 3.40GB |" in text
    assert "Hugging Face hub" not in composed(tmp_path / "local", experiment(tmp_path / "local"))


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("results")
    report(folder, experiment(folder))
    return folder


@pytest.fixture(scope="module")
def text(results: Path) -> str:
    return (results / "by-hand.md").read_text()


def table(text: str, head: str) -> dict[str, list[str]]:
    """Cells of the first table whose header has a word, by their first column."""
    lines = iter(text.splitlines())
    header = next(line for line in lines if line.startswith("|") and head in line)
    rows = [header, *itertools.takewhile(lambda line: line.startswith("|"), lines)]
    cells = [[cell.strip(" `") for cell in row.strip("|").split("|")] for row in rows]
    return {first: rest for first, *rest in cells}


def interval_of(values: list[float]) -> tuple[float, float]:
    """95 % interval of the mean in percent."""
    low, high = wider_ends(values)
    return 100 * low, 100 * high


# by question, from ANSWERS: c of n = 4 right, so pass@1 = c / 4 and pass@4 is 1 where c > 0
PASS_AT_1 = {
    "untrained": [0.5, 0.0, 1.0, 0.25],  # mean 1.75 / 4
    "trained": [1.0, 0.75, 1.0, 0.75],  # 3.5 / 4
    "without-tools": [0.0, 0.0, 0.75, 0.0],  # 0.75 / 4
}


def test_shares_of_right_answers_with_their_intervals(text: str):
    rows = table(text, "pass@1")
    assert rows[""] == ["n tasks", "pass@1"]
    expected = {"untrained": "43.8 %", "trained": "87.5 %", "without-tools": "18.8 %"}
    rates = table(text, "| pass rate |")
    for arm, share in expected.items():
        written = [float(number) for number in re.findall(r"[\d.]+", rates[arm][2].partition("[")[2])]
        low, high = interval_of(PASS_AT_1[arm])
        assert written == pytest.approx([max(0.0, low), min(100.0, high)], abs=0.051), arm
        assert rates[arm][2] == rows[f"turn 1 × 4 ({arm})"][1]
        assert rates[arm][2].partition(" [")[0] == share
    solved = {arm: rates[arm][1].partition(" = ")[0] for arm in expected}
    assert solved == {"untrained": "3/4", "trained": "4/4", "without-tools": "1/4"}


def test_differences_are_paired_by_question(text: str):
    rows = re.findall(r"\| turn 1: `([\w-]+)` − `([\w-]+)` \| 4 \| (.*?) \|", text)
    pairs = {(first, second): words for first, second, words in rows}
    assert list(pairs) == [("trained", "untrained"), ("without-tools", "untrained"), ("trained", "without-tools")]
    means = {
        ("trained", "untrained"): "+43.8",
        ("without-tools", "untrained"): "−25.0",
        ("trained", "without-tools"): "+68.8",
    }
    for pair, words in pairs.items():
        low, high = interval_of(list(np.subtract(PASS_AT_1[pair[0]], PASS_AT_1[pair[1]])))
        difference, *interval = re.findall(r"[−+][\d.]+", words)
        assert difference == means[pair]
        assert [float(number.replace("−", "-")) for number in interval] == pytest.approx(
            [max(-100.0, low), min(100.0, high)], abs=0.051
        )
        assert "**" not in words  # four questions are too few


def test_calls_and_tokens_are_means_over_episodes(text: str):
    calling = table(text, "| episodes that call |")
    assert [calling[arm][-2] for arm in ANSWERS] == ["12.5", "**93.8**", "0.0"]
    calls = table(text, "calls per episode")  # untrained: C and X of 16 call once; trained: two u and one L call twice
    assert [calls[arm][1] for arm in ANSWERS] == [f"{2 / 16:.2f}", f"{18 / 16:.2f}", "0.00"]
    # untrained: 11 x R or w with 10 tokens, T 48, C 20, X 40, another w; trained: 11 x C
    tokens = [13 * 10 + 48 + 20 + 40, 10 + 11 * 20 + 30 + 2 * 40 + 60, 15 * 10 + 48]
    spent = table(text, "at equal generated tokens")
    assert spent["trained` − `untrained"][0] == f"{tokens[1] / 4:.0f} / {tokens[0] / 4:.0f}"
    assert spent["without-tools` − `untrained"][0] == f"{tokens[2] / 4:.0f} / {tokens[0] / 4:.0f}"


def test_ends_of_episodes_are_counted(text: str):
    rows = table(text, "share of attempts")
    assert rows["share of attempts"] == [f"turn 1 × 4 ({arm})" for arm in ANSWERS]
    shares = {outcome: [cell.partition(" [")[0] for cell in cells] for outcome, cells in rows.items()}
    assert shares["correct"] == ["43.8 %", "87.5 %", "18.8 %"]
    assert shares["last turn truncated"] == ["6.2 %", "0.0 %", "6.2 %"]  # one of 16
    assert shares["out of tokens"] == ["6.2 %", "0.0 %", "0.0 %"]
    assert shares["called a tool with no calls left"] == ["0.0 %", "6.2 %", "0.0 %"]


def test_votes_and_pass_rates_with_and_without_calls(text: str, results: Path):
    columns = table(text, "maj@4")
    assert columns["arm"][0] == "maj@4"
    assert columns["arm"][2:] == ["pass rate of episodes with calls", "pass rate of episodes without calls"]
    # untrained: RRww is a tie that the earlier R wins, wwwT is wrong, RRRR right, and in CwwX w has two of three votes
    shares = {arm: columns[arm][0].partition(" [")[0] for arm in ANSWERS}
    assert shares == {"untrained": "50.0 %", "trained": "100.0 %", "without-tools": "25.0 %"}
    # untrained: C and X of the fourth question call; without calls RRww 1/2, wwwT 0, RRRR 1, ww 0
    with_calls, without = columns["untrained"][2:]
    assert with_calls == "50.0 % (episodes: 2, questions: 1)"
    assert without.startswith("37.5 % [")
    assert without.endswith(" (episodes: 14, questions: 4)")
    low, high = interval_of([0.5, 0.0, 1.0, 0.0])
    assert f"[{max(0.0, low):.1f}, {min(100.0, high):.1f}]" in without
    # trained: CCC 1, CCuf 3/4, CCCC 1, uCLC 3/4
    assert columns["trained"][2].startswith("87.5 % [")
    assert columns["trained"][3] == "100.0 % (episodes: 1, questions: 1)"
    assert columns["without-tools"][2] == "–"
    rows = pd.read_csv(results / "by-hand/report/sums-votes.csv").set_index("arm")
    assert list(rows["maj_at_k"]) == [0.5, 1.0, 0.25]
    assert rows.loc["untrained", "pass_rate_without_calls"] == 0.375
    assert list(rows["episodes_with_calls"]) == [2, 15, 0]
    assert list(rows["questions_without_calls"]) == [4, 1, 4]


def test_programs_do_not_vote(tmp_path: Path):
    heldout = SETTINGS["data"]["heldout"][0] | {"domain": "code", "source": "file", "path": "rows.jsonl"}
    content = SETTINGS | {"data": SETTINGS["data"] | {"heldout": [heldout]}}
    rows = table(composed(tmp_path, experiment(tmp_path, settings=content)), "maj@4")
    assert {rows[arm][0] for arm in ANSWERS} == {"–"}


def test_calls_are_counted_by_tool_and_fault(text: str, results: Path):
    (section,) = re.findall(r"### Calls by tool\n(.*?)\n###", text, re.DOTALL)
    rows = [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in section.splitlines() if "|" in line]
    assert [row for row in rows if "---" not in row[0]] == [
        ["arm", "tool", "calls", "faulty", "malformed", "unknown tool"],
        ["untrained", "calculator", "2", "0.0 %", "0", "0"],
        ["trained", "(none recognised)", "3", "100.0 %", "1", "2"],
        ["trained", "calculator", "15", "0.0 %", "0", "0"],  # 11 x C, 2 x u, and L twice
    ]
    table_of_tools = pd.read_csv(results / "by-hand/report/sums-tools.csv")
    assert list(table_of_tools["faulty"]) == [0, 3, 0]
    assert list(table_of_tools["unknown_tool"]) == [0, 2, 0]


def test_calls_are_counted_by_turn(text: str, results: Path):
    columns = table(text.partition("### Calls by turn")[2], "turn")
    # trained: 15 of 16 episodes call in turn 1 and have a turn 2; there u, u and L call again, and so have a third
    assert columns["1"] == ["0.12 (16)", "0.94 (16)", "0.00 (16)"]
    assert columns["2"] == ["0.00 (2)", "0.20 (15)", "–"]
    assert columns["3"] == ["–", "0.00 (3)", "–"]
    rows = pd.read_csv(results / "by-hand/report/sums-turns.csv")
    assert [list(row) for row in rows[rows["arm"] == "trained"][["turn", "episodes", "calls"]].to_numpy()] == [
        [1, 16, 15],
        [2, 15, 3],
        [3, 3, 0],
    ]


def test_for_texts_it_is_counted_how_often_calls_found_the_answer(tmp_path: Path, text: str):
    assert "Answers found" not in text
    name = SETTINGS["data"]["heldout"][0]["name"]
    heldout = {"name": name, "domain": "text", "source": "file", "path": "questions.jsonl", "shards": 2}
    settings = {**SETTINGS, "data": {**SETTINGS["data"], "heldout": [heldout]}}
    texts = [
        make_question(question.question_id, question.text, correct_answer(question), "text") for question in QUESTIONS
    ]
    own_settings = experiment(tmp_path, questions=texts, settings=settings)
    # every result is "2", so it shows the answer to question 1: in episodes C, C and u of trained
    rows = table(composed(tmp_path, own_settings), "found it")
    assert rows["trained"] == ["18.8 %", "100.0 % of 3", "84.6 % of 13"]
    assert rows["untrained"] == ["0.0 %", "–", "43.8 % of 16"]


def test_each_question_is_a_row_of_a_table(results: Path):
    rows = pd.read_csv(results / "by-hand/report/sums-tasks.csv").set_index(["arm", "task_id"])
    assert len(rows) == 12
    assert rows.loc[("trained", "sums/1"), ["episodes that call", "pass_rate", "solved"]].tolist() == [1.0, 0.75, 1.0]


def test_each_episode_is_a_row_of_the_table_of_attempts(results: Path):
    rows = pd.read_parquet(results / "by-hand/attempts.parquet")
    assert len(rows) == 3 * 4 * 4
    assert list(rows.attrs["tasks"]["sums"]) == [question.question_id for question in QUESTIONS]
    episodes = rows[(rows["arm"] == "trained") & (rows["task_id"] == "sums/1")]  # CCuf
    assert episodes["solved"].tolist() == [True, True, True, False]
    assert episodes["n_calls"].tolist() == [1, 1, 2, 1]
    assert episodes["n_faulty_calls"].sum() == 2
    assert episodes["n_tokens"].sum() == 20 + 20 + 40 + 30
    assert episodes["status"].tolist() == ["ok"] * 4 and episodes["turn"].unique() == [1]


def test_transcripts_are_of_the_questions_that_gained_most(text: str):
    first, _, others = text.partition("## Limitations")
    assert re.findall(r"\*\*How much is (\d)", first) == ["1"]  # on the first screen
    transcripts = first + others.partition("### Tasks")[2].partition("\n## ")[0]
    # right with training less right without: 2, 3, 0, 2
    assert re.findall(r"\*\*How much is (\d)", transcripts) == ["1", "0", "3"]
    assert re.findall(r"`([\w-]+)`, (\d) of 4 correct", transcripts)[:2] == [("untrained", "0"), ("trained", "3")]
    # the first of those that earn what most do: 0 of wwwT, 1 of CCuf, 1 of RRww and RCCC, 0 of CwwX, 1 of uCLC
    assert re.findall(r"letter (\w)", transcripts) == ["w", "C", "R", "R", "w", "u"]
    assert "    [tool]\n    2\n    [assistant]\n    letter C\n    [answered; reward 1]" in transcripts


def test_long_transcripts_on_the_first_screen_are_folded(tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch):
    folded = "<details><summary>Episodes"
    assert folded not in text
    monkeypatch.setattr("arc_refinery.tool_use.report.reported.MAX_UNFOLDED", 5)
    first_screen = composed(tmp_path, experiment(tmp_path)).partition("## ")[0]
    assert (
        first_screen.index("**How much is 1") < first_screen.index(folded) < first_screen.index("`untrained`, 0 of 4")
    )


def test_the_first_sentences_say_what_was_trained(text: str, wording: Wording):
    wording(line_with(text, "Trained on "))


# repeated trainings

SEEDED: dict[str, Any] = SETTINGS | {
    "training": {"grpo": {"learning_rate": 1e-3}, "seeds": [3, 5, 8]},
    "evaluation": SETTINGS["evaluation"] | {"arms": ARMS[:2]},
}
ANSWERS_OF_SEEDS = {
    "untrained": ANSWERS["untrained"],
    "trained-seed-3": ("RCCC", "CCuf", "CCCC", "uCLC"),  # 1, 3/4, 1, 3/4
    "trained-seed-5": ("RCCC", "CCff", "CCCf", "uCLf"),  # 1, 1/2, 3/4, 1/2
    "trained-seed-8": ("Rwww", "CCff", "CCCC", "uCCC"),  # 1/4, 1/2, 1, 1
}
OF_SEEDS = [[1.0, 0.75, 1.0, 0.75], [1.0, 0.5, 0.75, 0.5], [0.25, 0.5, 1.0, 1.0]]


def crossed_interval(values: list[list[float]]) -> tuple[float, float]:
    """95 % interval in percent with questions and trainings as random effects, as docs/methods.md writes it down."""
    d = np.array(values)
    r, n = d.shape
    question_variance = d.mean(0).var(ddof=1) / n
    fitted = d.mean(0)[None, :] + d.mean(1)[:, None] - d.mean()
    residual = ((d - fitted) ** 2).sum() / ((r - 1) * (n - 1))
    run_variance = max(0.0, d.mean(1).var(ddof=1) - residual / (2 * n)) / r
    parts = question_variance**2 / (n - 1) + (8 * run_variance) ** 2 / (r - 1)
    degrees = min(max((question_variance + 8 * run_variance) ** 2 / parts, r - 1), n - 1)
    low, high = wider_ends(d.mean(0), np.sqrt(question_variance + run_variance), degrees)
    return 100 * low, 100 * high


@pytest.fixture(scope="module")
def seeded(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("seeds")
    return composed(folder, experiment(folder, settings=SEEDED, every_answer=ANSWERS_OF_SEEDS))


def numbers(text: str) -> list[float]:
    return [float(number) for number in re.findall(r"[-+]?\d+\.\d", text.replace("−", "-"))]


def test_an_arm_has_a_row_for_each_training_and_one_for_their_mean(seeded: str):
    rows = table(seeded, "| pass rate |")
    assert [name for name in rows if name not in ("", "---")] == [
        "untrained",
        "trained`, mean of 3",
        "trained-seed-3",
        "trained-seed-5",
        "trained-seed-8",
    ]
    assert [numbers(rows[f"trained-seed-{seed}"][2])[0] for seed in (3, 5, 8)] == [87.5, 68.8, 68.8]
    low, high = crossed_interval(OF_SEEDS)
    expected = [100 * np.mean(OF_SEEDS), max(0.0, low), min(100.0, high)]
    assert numbers(rows["trained`, mean of 3"][2]) == pytest.approx(expected, abs=0.051)


def test_differences_of_repeated_arms_cover_trainings(seeded: str):
    (cells,) = re.findall(r"\| turn 1: `trained` − `untrained` \| 4 \| (.*)", seeded)
    differences = [[a - b for a, b in zip(run, PASS_AT_1["untrained"], strict=True)] for run in OF_SEEDS]
    low, high = crossed_interval(differences)
    difference, lowest, highest = numbers(cells.partition("|")[0])
    assert difference == pytest.approx(100 * np.mean(differences), abs=0.051)
    assert [lowest, highest] == pytest.approx([max(-100.0, low), min(100.0, high)], abs=0.051)
    assert numbers(cells.split("|")[-2]) == [43.8, 25.0, 25.0]
    answer = line_with(seeded, "75.0 % after training, in 43.8 % before: +31.2 points [")
    assert "per training +43.8, +25.0, +25.0" in answer


def test_a_report_says_which_trainings_its_intervals_cover(seeded: str, text: str, wording: Wording):
    for report_text, number in ((seeded, ["3"]), (text, [])):
        intervals = line_with(report_text, "- Intervals ")
        assert re.findall(r"\d+", intervals) == number
        wording(intervals)
    (seeds,) = re.findall(r"seeds: .*?\.", seeded)
    assert re.findall(r"\d+", seeds) == ["0", "3", "5", "8"]
    wording(seeds)
    wording(line_with(seeded, "`seed-3`, `seed-5`, `seed-8`"))


def test_runs_of_a_sweep_are_arms_of_their_own(tmp_path: Path):
    swept = SEEDED | {"training": {"grpo": {"learning_rate": 1e-3}, "sweep": [{"beta": 0.0}, {"beta": 0.1}]}}
    answers = {
        "untrained": ANSWERS["untrained"],
        "trained-beta-0": ANSWERS["trained"],
        "trained-beta-0.1": ANSWERS["without-tools"],
    }
    text = composed(tmp_path, experiment(tmp_path, settings=swept, every_answer=answers))
    lines = re.findall(r"turn 1: `([\w.-]+)` − `([\w.-]+)` \| 4 \| \**([−+.\d]+) ", text)
    assert lines == [
        ("trained-beta-0", "untrained", "+43.8"),
        ("trained-beta-0.1", "untrained", "−25.0"),
        ("trained-beta-0.1", "trained-beta-0", "−68.8"),
    ]
    assert ", mean of" not in text


# what is compared


def of_arms(*described: str) -> ToolUse:
    """`sft` is an arm with that adapter and tools, `sft!` one without tools."""
    arms = [
        {"name": label.replace("!", "-without"), "adapter": label.rstrip("!"), "tools": "!" not in label}
        for label in described
    ]
    training = {"sft": {"learning_rate": 1e-3}, "grpo": {"learning_rate": 1e-3}}
    content = SETTINGS | {"training": training, "evaluation": SETTINGS["evaluation"] | {"arms": arms}}
    return config.validate_experiment(content, "test", ToolUse)


@pytest.mark.parametrize(
    ("described", "expected"),
    [
        (("none",), []),
        (("none", "trained"), ["trained less none"]),
        # the baseline first; then sft and trained, which differ in the adapter alone
        (("none", "sft", "trained"), ["sft less none", "trained less none", "trained less sft"]),
        # trained! differs from none in two things, but none is the baseline; tools come first
        (
            ("none", "trained", "none!", "trained!"),
            [
                "trained less none",
                "none-without less none",
                "trained-without less none",
                "trained less trained-without",
                "trained-without less none-without",
            ],
        ),
        # trained and none! differ in two things
        (("sft", "trained", "none!"), ["trained less sft", "none-without less sft"]),
        # with tools less without, whichever comes first
        (
            ("none", "trained!", "trained"),
            ["trained-without less none", "trained less none", "trained less trained-without"],
        ),
    ],
)
def test_arms_are_compared_with_the_first_one_and_with_those_that_differ_in_one_thing(
    described: tuple[str, ...], expected: list[str]
):
    assert [f"{first} less {second}" for first, second in of_arms(*described).compared] == expected


# whatever the model writes

HOSTILE = [
    "```\n# a heading\n```",
    "# a heading",
    "</code></pre><script>alert(1)</script>",
    "| a | b |\n| --- | --- |\n| 1 | 2 |",
    "**bold** _it_ [link](missing.csv) ![picture](missing.png) <img src=x onerror=alert(1)>",
    "\n\n- a list\n\n\n1. another\n> quoted\n\n---\n\nUnder\n===",
    "<details><summary>",
    "a\x0bb\x0cc\x1cd\x85e\u2028f\rg\x00h",
    "\\",
    "`",
    "&lt;script&gt;",
]


VOID = ("meta", "img", "br", "hr")  # tags that nothing closes


class Page(HTMLParser):
    """Tags, headings and blocks of code of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, Mapping[str, str | None]]] = []
        self.code: list[str] = []
        self.strong: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "pre":
            self.code.append("")
        if tag == "strong":
            self.strong.append("")

    def handle_endtag(self, tag: str) -> None:
        assert tag in VOID or self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "pre" in self.open:
            self.code[-1] += data
        if "strong" in self.open:
            self.strong[-1] += data


def read(html: str) -> Page:
    parsed = Page()
    parsed.feed(html)
    return parsed


def headings(text: str) -> list[str]:
    tokens = MarkdownIt("commonmark", {"html": True}).enable("table").parse(text)
    return [inline.content for opened, inline in itertools.pairwise(tokens) if opened.type == "heading_open"]


@pytest.mark.parametrize("words", HOSTILE)
def test_what_models_and_questions_say_stays_where_it_belongs(tmp_path: Path, text: str, results: Path, words: str):
    questions = [make_question(question.question_id, words, words) for question in QUESTIONS]

    def saying(episode: Episode) -> Episode:
        return replace(episode, messages=(*episode.messages[:-1], EpisodeMessage("assistant", words)))

    said = composed(tmp_path, experiment(tmp_path, saying, questions))
    assert headings(said) == headings(text)
    plain = read((results / "by-hand.html").read_text())
    hostile = read(page.to_html(said, results / "by-hand.md"))  # with the pictures that are there
    assert [tag for tag, _ in hostile.tags] == [tag for tag, _ in plain.tags]

    words = words.replace("\0", "\N{REPLACEMENT CHARACTER}")  # as Markdown has it
    assert hostile.strong.count(" ".join(words.split())) == 3  # questions
    lines = "\n".join(words.rstrip().splitlines())
    transcripts = [block for block in hostile.code if "[answered; reward" in block]
    assert [block.count(f"[assistant]\n{lines}\n[answered; reward") for block in transcripts] == [1] * 6


# bytes, and the picture


def test_equal_results_give_equal_bytes_pictures_included(tmp_path: Path, results: Path, text: str):
    settings = experiment(tmp_path)
    assert composed(tmp_path, settings) == text
    report(tmp_path, settings)

    def contents(folder: Path) -> dict[str, bytes]:
        files = [folder / "by-hand.md", folder / "by-hand.html", *(folder / "by-hand/report").iterdir()]
        return {path.name: path.read_bytes() for path in files}

    assert contents(tmp_path) == contents(results)
    expected = {"mask.png", "mask.svg", "training-trained.png", "training-trained.svg"}
    expected |= {f"sums-{table}.csv" for table in ("tasks", "votes", "tools", "turns")}
    assert expected <= set(contents(results))


def grounds(svg: Path) -> tuple[int, int]:
    """Rectangles of tokens that carry loss, and of others."""
    svg_text = svg.read_text().lower()
    return svg_text.count("fill: #0072b2"), svg_text.count("fill: #dddddd")


def test_the_picture_of_the_mask_shows_each_token_on_its_ground(results: Path, text: str, wording: Wording):
    line = line_with(text, "`sums/0/001`")  # the first that calls and is right
    assert "`trained`" in line
    wording(line)
    assert grounds(results / "by-hand/report/mask.svg") == (4, 4)


@pytest.mark.filterwarnings("ignore:Glyph 28450")  # a box is drawn
def test_any_token_can_be_drawn(tmp_path: Path):
    tokens = ["$x^2$", "\n", "a\nb", "\t", "\r", "", " " * 128, "<|im_end|>", "&lt;", "\x00\x07", "漢", "�"]
    mask = [0, 1] * 6
    mask_picture(tokens, mask, tmp_path / "mask.png")
    assert grounds(tmp_path / "mask.svg") == (6, 6)
    ElementTree.parse(tmp_path / "mask.svg")


@pytest.mark.slow
def test_the_whole_vocabulary_can_be_drawn_one_token_after_the_other(tmp_path: Path):
    from arc_refinery.models.tokenizers import load_tokenizer

    tokenizer = load_tokenizer(TINY_TOOLS)
    tokens = sorted({tokenizer.decode([token]) for token in range(len(tokenizer))})
    mask_picture(tokens, [1] * len(tokens), tmp_path / "mask.png")
    assert grounds(tmp_path / "mask.svg") == (len(tokens), 0)
    ElementTree.parse(tmp_path / "mask.svg")


def test_a_set_without_questions_is_named(tmp_path: Path, wording: Wording):
    settings = experiment(tmp_path)
    path = tmp_path / "by-hand/questions/sums.parquet"
    records.write(path, records.Question, [], 0, {})
    with pytest.raises(RecordError) as caught:
        composed(tmp_path, settings)
    assert str(caught.value).startswith(f"{path}: ")
    wording(caught.value)
