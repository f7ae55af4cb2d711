"""Terms of the reward in training: built-in ones, those of the user, and what is refused."""

import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from checkout import ROOT
from experiments import settings_of
from factories import code_question, make_question
from messages import Wording

from arc_refinery.config import ConfigError, check_files, own_functions, validate_experiment
from arc_refinery.config.inputs import files_of_grpo
from arc_refinery.errors import InputError
from arc_refinery.jobs import sft, train
from arc_refinery.records.tool_use import Call, EpisodeMessage
from arc_refinery.tool_use import jobs
from arc_refinery.tool_use.config import EpisodeTerm, ToolUse
from arc_refinery.tool_use.config.rewards import REWARDS
from arc_refinery.tool_use.training.reward_terms import ScoredEpisode
from arc_refinery.training.rewards import Reward

DOCS = (ROOT / "docs/tool-use.md").read_text().partition("### A reward of your own")[2].partition("\n## ")[0]


def episode(*messages: str, **changes: Any) -> ScoredEpisode:
    """An episode whose messages are a turn, a result, a turn, a result, ..., a turn."""
    roles = ("assistant", "tool")
    fields: dict[str, Any] = {
        "question": make_question(),
        "messages": tuple(EpisodeMessage(roles[index % 2], text) for index, text in enumerate(messages)),
        "calls": tuple(Call("calculator", "") for _ in messages[1::2]),
        "ending": "answer",
        "n_tokens": 40,
        "max_tokens": 160,
        "answer": "7",
        "is_correct": True,
        "passed_tests": 1.0,
    }
    return ScoredEpisode(**fields | changes)


def content(**grpo: Any) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((ROOT / "config/tool-use-demo.yaml").read_text())
    loaded["model"]["path"] = str(ROOT / loaded["model"]["path"])
    loaded["training"]["grpo"] |= grpo
    return loaded


def value(term: str, scored: ScoredEpisode, max_episode_tokens: int = 160) -> float:
    (values,) = (
        Reward([EpisodeTerm.model_validate(term)], REWARDS)
        .values([replace(scored, max_tokens=max_episode_tokens)])
        .values()
    )
    return float(values[0])


# the page


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", DOCS, re.DOTALL)


def test_the_pages_reward_is_short_and_runs_as_it_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (code,), (settings,) = blocks("python"), blocks("yaml")
    assert len(code.splitlines()) + len(settings.splitlines()) <= 40
    monkeypatch.chdir(tmp_path)
    Path("rewards.py").write_text(code)
    own_functions.import_file.cache_clear()  # another test may have imported a file of this name
    experiment = validate_experiment(content(**yaml.safe_load(settings)["training"]["grpo"]), "mine.yaml", ToolUse)
    check_files(experiment, "mine.yaml")
    reward = Reward(experiment.rewards, REWARDS)
    episodes = [
        episode("a call", "14", "another call", "2", "14 / 2 = 7\n#### 7"),  # both results are mentioned
        episode(
            "a call", "14", "another call", "23", "It is 14.", is_correct=False, n_tokens=80
        ),  # one of two; no mark
        episode("#### 7"),
    ]
    values = reward.values(episodes)
    assert values == {
        "correct": [1.0, 0.0, 1.0],
        "format": [1.0, 0.0, 1.0],
        "length": [0.25, 0.5, 0.25],
        "uses_results": [1.0, 0.5, 0.0],
    }
    assert [sum(summands) for summands in reward.weighted(values)] == pytest.approx(
        [1 + 0.1 - 0.2 * 0.25 + 0.25, -0.2 * 0.5 + 0.25 * 0.5, 1 + 0.1 - 0.2 * 0.25]
    )


# built-in terms

TEXT = make_question(domain="text", reference="Paris")
PROGRAM = code_question("assert double(2) == 4")


@pytest.mark.parametrize(
    ("scored", "expected"),
    [
        (episode("#### 7"), 1.0),
        (episode("<think>\n3 + 4\n</think>\n\nThe answer is 7."), 1.0),
        (episode("It is 7."), 0.0),
        (episode("<think>\n#### 7\n</think>\n\nIt is 7."), 0.0),  # the mark is a thought
        (episode("#### 7", ending="truncated"), 0.0),
        (episode("a call", "Error", "#### 7", calls=(Call("", "malformed"),)), 0.0),
        (episode("a call", "Error", "#### 7", calls=(Call("", "cut_off"),)), 0.0),
        (episode("a call", "Error", "#### 7", calls=(Call("calculator", "failed"),)), 1.0),  # written as it should be
        (episode("```python\nf = 1\n```", question=PROGRAM, answer="f = 1"), 1.0),
        (episode("f = 1", question=PROGRAM, answer=""), 0.0),
        # a mark or a block without an answer
        (episode("####"), 0.0),
        (episode("#### number"), 0.0),
        (episode("#### Step 1: Add\n3 and 4 make 7."), 0.0),
        (episode("#### Final Answer\nIt is 7."), 0.0),
        (episode(r"\boxed{}"), 0.0),
        (episode("The answer is"), 0.0),
        (episode("#### 18 or 19"), 0.0),
        (episode("####", question=TEXT), 0.0),
        (episode("#### ...", question=TEXT), 0.0),
        (episode("#### Paris", question=TEXT), 1.0),
    ],
)
def test_the_form_of_an_episode(scored: ScoredEpisode, expected: float):
    assert value("format", scored) == expected


def test_tests_that_pass_and_tokens_are_shares():
    assert value("passed_tests", episode("", passed_tests=0.75)) == 0.75
    assert value("length", episode("", n_tokens=120), 160) == 0.75
    assert value("correct", episode("", is_correct=False)) == 0.0


def test_faulty_calls_are_counted_in_the_turn_that_made_them():
    three = episode(
        *("two calls", "4", "Error", "a call", "Error", "#### 7"),
        messages=tuple(
            EpisodeMessage(role, "text") for role in ("assistant", "tool", "tool", "assistant", "tool", "assistant")
        ),
        calls=(Call("calculator", ""), Call("", "malformed"), Call("calculator", "failed")),
    )
    reward = Reward([EpisodeTerm(reward="correct"), EpisodeTerm(reward="faulty_calls", weight=-0.25)], REWARDS)
    without_room = episode("a call", messages=(EpisodeMessage("assistant", "a call"),), is_correct=False)
    cut = replace(without_room, calls=(Call("calculator", "failed"),), ending="tokens")
    values = reward.values([three, cut])
    assert values == {"correct": [1.0, 0.0], "faulty_calls": [2.0, 1.0]}
    assert reward.earned(values, [3, 1]) == [[-0.25, -0.25, 1.0], [-0.25]]
    assert Reward([EpisodeTerm(reward="correct")], REWARDS).earned({"correct": [1.0]}, [3]) == [[]], (
        "the last turn earns it all"
    )


# functions of the user


def test_a_function_may_give_a_number_for_each_turn(tmp_path: Path):
    path = tmp_path / "mine.py"
    path.write_text("def score(episode):\n    return [0.5, 2]\n")
    reward = Reward([EpisodeTerm(reward=f"{path}:score", weight=2.0)], REWARDS)
    values = reward.values([episode("a call", "14", "#### 7")])
    assert values == {"score": [2.5]}
    assert reward.earned(values, [2]) == [[1.0, 4.0]]
    with pytest.raises(InputError, match=r"returned \[0.5, 2\]; .* or a list of 1, one for each turn"):
        reward.values([episode("#### 7")])


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("return None", " None;"),
        ("return float('nan')", " nan;"),
        ("return 10**400", f" 1{'0' * 79};"),
        ("return -1e308", " -1e+308;"),
        ("return '1'", " '1';"),
        ("return episode.anwser", "AttributeError in line 2: 'ScoredEpisode' object has no attribute 'anwser'"),
        ("raise BaseException('odd')", "BaseException in line 2: odd;"),
        ("raise type('Odd', (Exception,), {'__str__': lambda self: 1 / 0})", "in line 2: its message cannot be shown;"),
        ("import os; os._exit(0)", "SystemExit in line 2: os._exit(0);"),
    ],
)
def test_a_function_that_gives_no_number_is_named_with_the_question(
    tmp_path: Path, body: str, expected: str, wording: Wording
):
    path = tmp_path / "mine.py"
    path.write_text(f"def score(episode):\n    {body}\n")
    with pytest.raises(InputError) as raised:
        value(f"{path}:score", episode("#### 7"))
    assert str(raised.value).startswith(f"{path}:score, on the question q: ")
    assert expected in str(raised.value)
    wording(raised.value)


def test_a_function_that_does_not_end_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wording: Wording):
    monkeypatch.setattr(own_functions, "MAX_SECONDS", 0.05)
    path = tmp_path / "mine.py"
    path.write_text("def score(episode):\n    while True:\n        pass\n")
    with pytest.raises(InputError, match=r"mine\.py:score, .* q: .* 0\.05 s, in line [23];") as raised:
        value(f"{path}:score", episode("#### 7"))
    wording(str(raised.value).replace("line 3", "line 2"))  # it is in either


SCORE = "def score(episode):\n    return 1\n"
AT_IMPORT = {
    "loops": ("while True: pass\n" + SCORE, ": its import was still running after 0.1 s"),
    "sleeps": (SCORE + "import time\ntime.sleep(9)", ": its import was still running after 0.1 s"),
    "loops and catches": (
        "import time\nstart = time.monotonic()\nwhile time.monotonic() < start + 9:\n    try:\n        time.sleep(9)\n"
        "    except BaseException as error:\n        if time.monotonic() > start + 1: raise\n" + SCORE,
        ": its import was still running after 0.1 s",
    ),
    "interrupts": ("raise KeyboardInterrupt\n" + SCORE, ": cannot be imported: KeyboardInterrupt. "),
    "exits": ("import sys; sys.exit()\n" + SCORE, ": cannot be imported: SystemExit. "),
    "leaves": ("import os; os._exit(3)\n" + SCORE, ": cannot be imported: SystemExit: os._exit(3). "),
    "raises no exception": ("raise BaseException('odd')\n" + SCORE, ": cannot be imported: BaseException: odd. "),
    "deletes": (SCORE + "if True:\n    del score", ":score: after the import of its file it is deleted; "),
    "replaces": (SCORE + "globals()['score'] = 0.5", ":score: after the import of its file it is 0.5; "),
}


@pytest.mark.parametrize(("source", "expected"), AT_IMPORT.values(), ids=AT_IMPORT.keys())
def test_a_file_that_misbehaves_at_its_import_is_named_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, expected: str, wording: Wording
):
    monkeypatch.setattr(own_functions, "IMPORT_SECONDS", 0.1)
    leave = os._exit
    path = tmp_path / "mine.py"
    path.write_text(source)
    with pytest.raises(InputError) as raised:
        Reward([EpisodeTerm.model_validate(f"{path}:score")], REWARDS)
    assert str(raised.value).startswith(f"{path}{expected}")
    assert os._exit is leave
    wording(raised.value)


def test_what_catches_its_interruptions_ends_the_process(tmp_path: Path):
    path = tmp_path / "mine.py"
    path.write_text("while True:\n    try:\n        while True: pass\n    except BaseException: pass\n")
    script = f"""
from pathlib import Path
from arc_refinery.config import own_functions
own_functions.IMPORT_SECONDS = own_functions.GRACE_SECONDS = 0.1
own_functions.import_file(Path({str(path)!r}))
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, str(path) in ended.stderr) == (1, True)


def test_a_child_of_an_import_may_end_as_it_likes(tmp_path: Path):
    path = tmp_path / "mine.py"
    path.write_text(
        "import os\nchild = os.fork()\nif not child: os._exit(3)\nstatus = os.waitpid(child, 0)[1]\n"
        "def score(episode):\n    return os.waitstatus_to_exitcode(status)\n"
    )
    assert value(f"{path}:score", episode("#### 7")) == 3


def test_a_file_that_cannot_be_imported_is_named_before_training(tmp_path: Path, wording: Wording):
    path = tmp_path / "mine.py"
    path.write_text("import nothing_of_that_name\ndef score(episode):\n    return 1\n")
    with pytest.raises(InputError, match=r"mine\.py: .*ModuleNotFoundError: .*'nothing_of_that_name'") as raised:
        Reward([EpisodeTerm.model_validate(f"{path}:score")], REWARDS)
    wording(raised.value)


# the config

# the key that the message begins with, and what else it names
WRONG: dict[str, tuple[list[Any], str, str]] = {
    "unknown": (["corect"], "training.grpo.rewards.0", "'corect'"),
    "no name": ([3], "training.grpo.rewards.0", " 3;"),
    "weight of nothing": (["correct", {"reward": "format", "weight": 0}], "training.grpo.rewards.1", "format"),
    "infinite weight": ([{"reward": "format", "weight": float("inf")}], "training.grpo.rewards.0.weight", " inf;"),
    "misspelt key": ([{"reward": "format", "wieght": 1}], "training.grpo.rewards.0.wieght", ""),
    "none": ([], "training.grpo.rewards", ""),
    "twice": (["one.py:score", "two.py:score"], "training.grpo.rewards: ", "score"),
}


@pytest.mark.parametrize(("rewards", "key", "names"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_term_gives_one_line_that_names_file_and_key(
    rewards: list[Any], key: str, names: str, wording: Wording
):
    with pytest.raises(ConfigError) as raised:
        validate_experiment(content(rewards=rewards), "mine.yaml")
    (line,) = str(raised.value).splitlines()
    assert line.startswith(f"mine.yaml: {key}")
    assert names in line
    wording(line)


@pytest.mark.parametrize(
    ("source", "place", "names"),
    [
        pytest.param("def scores(episode):\n    return 1\n", "", "`score`", id="not there"),
        pytest.param(
            "def score(episode, question):\n    return 1\n", "line 1: `score` ", "episode", id="two arguments"
        ),
        pytest.param("def score():\n    return 1\n", "line 1: `score` ", "episode", id="no argument"),
        pytest.param("\nclass score:\n    pass\n", "line 2: `score` ", "class", id="a class"),
        pytest.param("def score(episode:\n", "line 1: ", "Python", id="no Python"),
    ],
)
def test_code_that_cannot_be_a_reward_is_refused_before_the_first_job(
    tmp_path: Path, source: str, place: str, names: str, wording: Wording
):
    path = tmp_path / "mine.py"
    path.write_text(source)
    experiment = validate_experiment(content(rewards=["correct", f"{path}:score"]), "mine.yaml")
    with pytest.raises(ConfigError) as raised:
        check_files(experiment, "mine.yaml")
    begin = f"mine.yaml: training.grpo.rewards.1: {path}: {place}"
    assert str(raised.value).startswith(begin)
    assert names in str(raised.value).removeprefix(begin)
    wording(raised.value)


def test_a_function_may_be_wrapped_or_defined_again(tmp_path: Path):
    path = tmp_path / "mine.py"
    path.write_text(
        "score = 0\n" + SCORE + SCORE.replace("1", "2") + "from functools import cache\nscore = cache(score)\n"
    )
    check_files(validate_experiment(content(rewards=[f"{path}:score"]), "mine.yaml"), "mine.yaml")
    assert value(f"{path}:score", episode("#### 7")) == 2


def test_a_missing_file_is_named(tmp_path: Path, wording: Wording):
    experiment = validate_experiment(content(rewards=[f"{tmp_path}/mine.py:score"]), "mine.yaml")
    with pytest.raises(ConfigError, match=r"^mine\.yaml: training\.grpo\.rewards\.0: \S*/mine\.py ") as raised:
        check_files(experiment, "mine.yaml")
    wording(raised.value)


def test_terms_and_their_files_belong_to_the_training_alone():
    terms = ["correct", {"reward": "mine.py:score", "weight": 0.5}]
    experiment = validate_experiment(content(rewards=terms), "mine.yaml", ToolUse)
    terms_of_job = settings_of(train(experiment, "trained"))["grpo"]["rewards"]
    assert tuple(map(EpisodeTerm.model_validate, terms_of_job)) == experiment.rewards
    assert tuple(map(EpisodeTerm.model_validate, ("correct", "mine.py:score=0.5"))) == experiment.rewards
    assert files_of_grpo(experiment) == ["mine.py"]
    plain = validate_experiment(content(), "mine.yaml", ToolUse)
    assert jobs.episodes(experiment, "arithmetic", "trained") == jobs.episodes(plain, "arithmetic", "trained")
    assert sft(experiment, "sft") == sft(plain, "sft")
