"""The report of tool use on episodes made by hand: figures, what is compared, transcripts, the picture of the mask.

Each episode is a letter: R right without a call, w wrong without one, C right after a call, f wrong after a call that
is no JSON, u right after a call of an unknown tool and a good one, T cut, X out of tokens, L calls on with none left.
"""

import itertools
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from checkout import TINY_TOOLS
from factories import make_episode, make_question
from markdown_it import MarkdownIt
from scipy.stats import ttest_1samp

from arc_refinery import config, records
from arc_refinery.config import ToolArm, ToolUse
from arc_refinery.records import RecordError
from arc_refinery.records.questions import Question
from arc_refinery.records.transcripts import Call, Episode, EpisodeMessage
from arc_refinery.reporting import page
from arc_refinery.reporting.publish import Attachments
from arc_refinery.reporting.tool_use.mask import mask_picture

GOOD, NO_JSON, UNKNOWN = Call("calculator", ""), Call("", "malformed"), Call("", "unknown_tool")
# calls, ending, reward, tokens written
LETTERS: dict[str, tuple[tuple[Call, ...], str, float, int]] = {
    "R": ((), "answer", 1.0, 10),
    "w": ((), "answer", 0.0, 10),
    "C": ((GOOD,), "answer", 1.0, 20),
    "f": ((NO_JSON,), "answer", 0.0, 30),
    "u": ((UNKNOWN, GOOD), "answer", 1.0, 40),
    "T": ((), "truncated", 0.0, 48),
    "X": ((GOOD,), "tokens", 0.0, 40),
    "L": ((GOOD, GOOD), "calls", 0.0, 60),
}
# of each arm and question, four episodes
ANSWERS = {
    "untrained": ("RRww", "wwwT", "RRRR", "CwwX"),
    "trained": ("RCCC", "CCuf", "CCCC", "uCLC"),
    "without-tools": ("wwwT", "wwww", "RRRw", "wwww"),
}
ARMS = [
    {"name": "untrained"},
    {"name": "trained", "adapter": "trained"},
    {"name": "without-tools", "adapter": "trained", "tools": False},
]
SETTINGS: dict[str, Any] = {
    "experiment": "by-hand",
    "model": {"path": TINY_TOOLS, "window": 512},
    "data": {
        "train": [{"name": "some", "form": "gsm8k", "source": "generator", "n_questions": 9}],
        "heldout": [{"name": "sums", "form": "gsm8k", "source": "generator", "n_questions": 4, "shards": 2}],
    },
    "generation": {"max_turn_tokens": 48, "max_episode_tokens": 160, "max_calls": 2},
    "training": {"grpo": {"learning_rate": 1e-3}},
    "evaluation": {"n_predictions": 4, "questions_per_batch": 1, "arms": ARMS},
}
QUESTIONS = [
    make_question(question_id=f"sums/{number}", text=f"How much is {number} + {number}?", reference=str(2 * number))
    for number in range(4)
]

Change = Callable[[Episode], Episode]


def episode(question: Question, number: int, letter: str) -> Episode:
    calls, ending, reward, n_tokens = LETTERS[letter]
    said = [
        one
        for call in calls
        for one in (EpisodeMessage("assistant", "a call"), EpisodeMessage("tool", call.fault or "2"))
    ]
    return make_episode(
        question,
        episode_id=f"{question.question_id}/{number:03d}",
        messages=(*said, EpisodeMessage("assistant", f"letter {letter}")),
        calls=calls,
        completion_ids=tuple(range(300, 308)),
        mask=(1, 1, 1, 0, 0, 0, 0, 1),
        ending=ending,
        n_tokens=n_tokens,
        reward=reward,
    )


def experiment(results: Path, change: Change = lambda one: one, questions: Sequence[Question] = QUESTIONS) -> ToolUse:
    """The files of a finished experiment, in the folder `results`; its first batches are in shard 0, others in 1."""
    made = config.validate_experiment(SETTINGS, "test", config.ToolUse)
    folder = results / made.experiment
    records.write(folder / "questions/sums.parquet", "questions", questions, 0, {})
    for arm, answers in ANSWERS.items():
        played = [
            [change(episode(question, number, letter)) for number, letter in enumerate(letters)]
            for question, letters in zip(questions, answers, strict=True)
        ]
        for shard in (0, 1):
            rows = [one for of_question in played[shard::2] for one in of_question]
            records.write(folder / f"sums/{arm}/{shard:03d}.parquet", "episodes", rows, 0, {})
    log = folder / "adapters/trained/training.jsonl"
    log.parent.mkdir(parents=True)
    steps = [{"step": step, "reward": step / 4, "share/calling": 0.5, "calls": 1.0} for step in (1, 2, 3)]
    log.write_text("".join(json.dumps(step) + "\n" for step in steps))
    return made


def report(results: Path, made: ToolUse) -> None:
    from arc_refinery.reporting.tool_use.report import write_report  # it imports torch

    path = results / "by-hand.md"
    write_report(made, results / "by-hand", path)
    page.write_page(path, path.with_suffix(".html"))


def composed(results: Path, made: ToolUse) -> str:
    """The report's text alone: nothing is drawn."""
    from arc_refinery.reporting.tool_use.report import compose

    return "\n\n".join(compose(made, results / "by-hand", Attachments("by-hand/report"))) + "\n"


def test_a_model_of_the_hub_is_read_where_it_was_fetched_and_its_commit_is_named(tmp_path: Path):
    made = experiment(tmp_path)
    model = {"path": "someone/tools", "revision": "v2", "window": 512}
    folder = tmp_path / "by-hand/fetched/someone"
    folder.mkdir(parents=True)
    (folder / "tools").symlink_to(TINY_TOOLS)
    (folder / "tools.json").write_text(json.dumps({"commit": "c0ffee", "revision": "v2", "bytes": 3_400_000_000}))
    text = composed(tmp_path, config.validate_experiment(SETTINGS | {"model": model}, "test", config.ToolUse))
    assert "| someone/tools | v2 | `c0ffee` | 3.40GB |" in text
    assert "Hugging Face hub" not in composed(tmp_path, made)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("results")
    report(folder, experiment(folder))
    return folder


@pytest.fixture(scope="module")
def text(results: Path) -> str:
    return (results / "by-hand.md").read_text()


def table(text: str, head: str) -> dict[str, list[str]]:
    """Cells of the first table whose header has a word, by what stands in their first column."""
    lines = iter(text.splitlines())
    header = next(line for line in lines if line.startswith("|") and head in line)
    rows = [header, *itertools.takewhile(lambda line: line.startswith("|"), lines)]
    cells = [[cell.strip(" `") for cell in row.strip("|").split("|")] for row in rows]
    return {first: rest for first, *rest in cells}


def students_interval(values: list[float]) -> tuple[float, float]:
    """95 % interval of the mean in percent, by scipy."""
    found = ttest_1samp(values, 0).confidence_interval()
    return 100 * found.low, 100 * found.high


# by question, from ANSWERS: c of n = 4 right, so pass@1 = c / 4 and pass@4 is 1 where c > 0
PASS_AT_1 = {
    "untrained": [0.5, 0.0, 1.0, 0.25],  # mean 1.75 / 4
    "trained": [1.0, 0.75, 1.0, 0.75],  # 3.5 / 4
    "without-tools": [0.0, 0.0, 0.75, 0.0],  # 0.75 / 4
}


def test_shares_of_right_answers_with_their_intervals(text: str):
    found = table(text, "pass@1")
    assert found["arm"][2:4] == ["pass@1", "pass@4"]
    expected = {
        "untrained": ("43.8 %", "75.0 %"),
        "trained": ("87.5 %", "100.0 %"),
        "without-tools": ("18.8 %", "25.0 %"),
    }
    assert {arm: (found[arm][2].partition(" [")[0], found[arm][3].partition(" [")[0]) for arm in ANSWERS} == expected
    for arm, values in PASS_AT_1.items():
        written = [float(number) for number in re.findall(r"[\d.]+", found[arm][2].partition("[")[2])]
        low, high = students_interval(values)
        assert written == pytest.approx([max(0.0, low), min(100.0, high)], abs=0.051), arm
    assert [found[arm][:2] for arm in ANSWERS] == [["none", "yes"], ["trained", "yes"], ["trained", "no"]]


def test_differences_are_paired_by_question(text: str):
    lines = re.findall(r"- `([\w-]+)` − `([\w-]+)`: (.*)", text)
    found = {(first, second): words for first, second, words in lines}
    assert list(found) == [("trained", "untrained"), ("without-tools", "untrained"), ("trained", "without-tools")]
    means = {
        ("trained", "untrained"): "+43.8",
        ("without-tools", "untrained"): "-25.0",
        ("trained", "without-tools"): "+68.8",
    }
    for pair, words in found.items():
        values = np.subtract(PASS_AT_1[pair[0]], PASS_AT_1[pair[1]])
        low, high = students_interval(list(values))
        difference, *interval = re.findall(r"(?<![@\d])[-+][\d.]+", words)
        assert difference == means[pair]
        assert [float(number) for number in interval] == pytest.approx([max(-100.0, low), min(100.0, high)], abs=0.051)
        assert ("**" in words) == (low > 0 or high < 0)
        assert ("The evidence does not support a difference" in words) == (low <= 0 <= high)


def test_calls_and_lengths_are_means_over_episodes(text: str):
    found = table(text, "episodes that call")
    # untrained: C and X of 16 call once; 11 x R or w with 10 tokens, T 48, C 20, X 40, another w
    assert found["untrained"][4:] == ["12.5 %", f"{2 / 16:.2f}", f"{(13 * 10 + 48 + 20 + 40) / 16:.1f}"]
    # trained: all of 16 but one call; two u and one L call twice; 11 x C
    assert found["trained"][4:] == ["93.8 %", f"{18 / 16:.2f}", f"{(10 + 11 * 20 + 30 + 2 * 40 + 60) / 16:.1f}"]
    assert found["without-tools"][4:] == ["0.0 %", "0.00", f"{(15 * 10 + 48) / 16:.1f}"]


def test_faults_of_calls_and_ends_of_episodes_are_counted(text: str):
    found = table(text.partition("### Calls and episode endings")[2], "`trained`")
    assert found == {
        "": ["untrained", "trained", "without-tools"],
        "---": ["---:", "---:", "---:"],
        "calls": ["2", "18", "0"],
        "… malformed": ["0", "1", "0"],
        "… unknown tool": ["0", "2", "0"],
        "episodes": ["16", "16", "16"],
        "… answered": ["14", "15", "15"],
        "… last turn truncated": ["1", "0", "1"],
        "… out of tokens": ["1", "0", "0"],
        "… called a tool with no calls left": ["0", "1", "0"],
    }


def test_each_question_is_a_row_of_a_table(results: Path):
    rows = pd.read_csv(results / "by-hand/report/sums-questions.csv").set_index(["arm", "question_id"])
    assert len(rows) == 12
    expected = {"episodes": 4, "right": 3, "calling": 4, "calls": 5, "faulty_calls": 2, "tokens": 20 + 20 + 40 + 30}
    assert rows.loc[("trained", "sums/1")].to_dict() == expected


def test_transcripts_are_of_the_questions_that_gained_most(text: str):
    shown = text.partition("### Transcripts")[2].partition("\n## ")[0]
    # right with training less right without: 2, 3, 0, 2
    assert re.findall(r"\*\*How much is (\d)", shown) == ["1", "0", "3"]
    assert re.findall(r"`([\w-]+)`, (\d) of 4 correct", shown)[:2] == [("untrained", "0"), ("trained", "3")]
    # the first of those that earn what most do: 0 of wwwT, 1 of CCuf, 1 of RRww and RCCC, 0 of CwwX, 1 of uCLC
    assert re.findall(r"letter (\w)", shown) == ["w", "C", "R", "R", "w", "u"]
    assert "    [tool]\n    2\n    [assistant]\n    letter C\n    [answered; reward 1]" in shown


# what is compared


def arms(*described: str) -> list[ToolArm]:
    """`sft` is an arm with that adapter and tools, `sft!` one without tools."""
    return [
        ToolArm.model_validate(
            {"name": one.replace("!", "-without"), "adapter": one.rstrip("!"), "tools": "!" not in one}
        )
        for one in described
    ]


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
    from arc_refinery.reporting.tool_use.report import pairs_to_compare

    assert [f"{first.name} less {second.name}" for first, second in pairs_to_compare(arms(*described))] == expected


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
    questions = [replace(one, text=words, reference=words) for one in QUESTIONS]

    def saying(one: Episode) -> Episode:
        return replace(one, messages=(*one.messages[:-1], EpisodeMessage("assistant", words)))

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
    made = experiment(tmp_path)
    assert composed(tmp_path, made) == text
    report(tmp_path, made)

    def contents(folder: Path) -> dict[str, bytes]:
        files = [folder / "by-hand.md", folder / "by-hand.html", *(folder / "by-hand/report").iterdir()]
        return {path.name: path.read_bytes() for path in files}

    assert contents(tmp_path) == contents(results)
    expected = {"mask.png", "mask.svg", "training-trained.png", "training-trained.svg", "sums-questions.csv"}
    assert expected <= set(contents(results))


def grounds(svg: Path) -> tuple[int, int]:
    """Rectangles of tokens that carry loss, and of others."""
    drawn = svg.read_text().lower()
    return drawn.count("fill: #0072b2"), drawn.count("fill: #dddddd")


def test_the_picture_of_the_mask_shows_each_token_on_its_ground(results: Path, text: str):
    assert "All tokens of the episode `sums/0/001` of `trained`" in text  # the first that calls and is right
    assert grounds(results / "by-hand/report/mask.svg") == (4, 4)


@pytest.mark.filterwarnings("ignore:Glyph 28450")  # a box is drawn
def test_any_token_can_be_drawn(tmp_path: Path):
    tokens = ["$x^2$", "\n", "a\nb", "\t", "\r", "", " " * 128, "<|im_end|>", "&lt;", "\x00\x07", "漢", "�"]
    mask = [0, 1] * 6
    mask_picture(tokens, mask, tmp_path / "mask.png")
    assert grounds(tmp_path / "mask.svg") == (6, 6)
    ElementTree.parse(tmp_path / "mask.svg")


def test_the_whole_vocabulary_can_be_drawn_one_token_after_the_other(tmp_path: Path):
    from arc_refinery.tokenizers import load_tokenizer

    tokenizer = load_tokenizer(TINY_TOOLS)
    tokens = sorted({tokenizer.decode([token]) for token in range(len(tokenizer))})
    mask_picture(tokens, [1] * len(tokens), tmp_path / "mask.png")
    assert grounds(tmp_path / "mask.svg") == (len(tokens), 0)
    ElementTree.parse(tmp_path / "mask.svg")


def test_a_set_without_questions_is_named(tmp_path: Path):
    made = experiment(tmp_path)
    path = tmp_path / "by-hand/questions/sums.parquet"
    records.write(path, "questions", [], 0, {})
    with pytest.raises(RecordError, match=r"questions/sums\.parquet: has no questions"):
        composed(tmp_path, made)
