"""Users who reply to answers: how episodes continue, what is masked, what is refused."""

import random
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from checkout import ROOT
from factories import make_episode, make_question
from messages import Wording
from written_turns import END, HEADER, LIMITS, NO_THOUGHT, NOTES, OTHER_END, loss_mask, make_renderer, turn

from arc_refinery.config import ConfigError, check_files, validate_experiment
from arc_refinery.errors import InputError
from arc_refinery.records.tool_use import Call, EpisodeMessage
from arc_refinery.tool_use import inputs, stages
from arc_refinery.tool_use.config import ToolUse
from arc_refinery.tool_use.episodes.episodes import Rollout, run_episodes
from arc_refinery.tool_use.episodes.rendering import ToolRenderer
from arc_refinery.tool_use.episodes.users import NOT_RIGHT, OpenEpisode, Users
from arc_refinery.tool_use.grading.metrics import episodes_by_user_messages, measure_texts
from arc_refinery.tool_use.report.metrics import _users_section
from arc_refinery.tool_use.tools.toolbox import Toolbox

QUESTION = make_question(question_id="sums/1", text="2 * 3?", reference="6")
WRONG, RIGHT = f"<think>\nA guess.\n</think>\n\n#### 5{END}", f"<think>\nAgain.\n</think>\n\n#### 6{END}"
CALL = f'<tool_call>\n{{"name": "calculator", "arguments": {{"expression": "2*3"}}}}\n</tool_call>{END}'
both = pytest.mark.parametrize("thinking", [True, False])


@pytest.fixture(scope="module")
def renderer() -> ToolRenderer:
    return make_renderer(True, ("calculator",))


def own(folder: Path, body: str) -> str:
    path = folder / "users.py"
    path.write_text(f"def reply(episode):\n    {body}\n")
    return f"{path}:reply"


def played(renderer: ToolRenderer, user: str, *turns: str, **limits: int) -> Rollout:
    """One episode with these turns; all of them must be asked for."""
    episode = Rollout(renderer.ids(renderer.prompt(QUESTION.text)), Toolbox(("calculator",)))
    episode.user = Users({"sums": user}).of(QUESTION)
    ids, contexts = iter([renderer.ids(turn) for turn in turns]), list[list[int]]()

    def sample(prompts: list[list[int]]) -> tuple[list[list[int]], None]:
        contexts.extend(prompts)
        return [next(ids)], None

    changed = LIMITS.model_copy(update=limits)
    run_episodes([episode], sample, renderer, changed, frozenset(renderer.ids(END + OTHER_END)))
    assert next(ids, None) is None
    assert all(longer[: len(context)] == context for context, longer in pairwise(contexts))
    return episode


def roles(episode: Rollout) -> list[str]:
    return [message.role for message in episode.messages]


# episodes


def test_after_a_wrong_answer_the_user_says_so_and_the_last_answer_counts(renderer: ToolRenderer):
    episode = played(renderer, "check-again", WRONG, CALL, RIGHT)
    assert roles(episode) == ["assistant", "user", "assistant", "tool", "assistant"]
    assert episode.messages[1].content == NOT_RIGHT
    between = f"\n<|im_start|>user\n{NOT_RIGHT}{END}\n{HEADER}"
    result = f"\n<|im_start|>user\n<tool_response>\n6\n</tool_response>{END}\n{HEADER}"
    parts = [(WRONG, 1), (between, 0), (CALL, 1), (result, 0), (RIGHT, 1)]
    ids = [(token, is_sampled) for text, is_sampled in parts for token in renderer.ids(text)]
    assert list(zip(episode.completion_ids, episode.mask, strict=True)) == ids
    assert (episode.ending, episode.last_turn) == ("answer", RIGHT.removesuffix(END))


def test_a_right_answer_ends_the_episode(renderer: ToolRenderer):
    assert roles(played(renderer, "check-again", RIGHT)) == ["assistant"]


def test_the_user_has_a_limited_number_of_messages(renderer: ToolRenderer):
    episode = played(renderer, "check-again", WRONG, WRONG, WRONG, max_user_messages=2)
    assert roles(episode) == ["assistant", "user"] * 2 + ["assistant"]
    assert (episode.ending, episode.n_user_messages) == ("answer", 2)


def test_without_room_for_the_message_the_answer_stays(renderer: ToolRenderer):
    n_tokens = len(renderer.ids(WRONG) + renderer.ids(renderer.reply(NOT_RIGHT)))
    episode = played(renderer, "check-again", WRONG, max_episode_tokens=n_tokens)
    assert (episode.ending, episode.mask) == ("answer", [1] * len(renderer.ids(WRONG)))
    episode = played(renderer, "check-again", WRONG, RIGHT, max_episode_tokens=n_tokens + 1)
    assert (episode.ending, len(episode.completion_ids)) == ("truncated", n_tokens + 1)


def test_a_turn_that_ended_with_another_token_gets_the_stop_token(renderer: ToolRenderer):
    episode = played(renderer, "check-again", WRONG.removesuffix(END) + OTHER_END, RIGHT)
    n = len(renderer.ids(WRONG))
    assert renderer.tokenizer.decode(episode.completion_ids[n - 1 : n + 1]) == OTHER_END + END
    assert episode.mask[n - 1 : n + 1] == [1, 0]


def test_only_answers_are_replied_to(renderer: ToolRenderer, tmp_path: Path):
    user = own(tmp_path, "raise AssertionError")
    cut = played(renderer, user, "#### " + "5" * 200)
    assert (cut.ending, roles(cut)) == ("truncated", ["assistant"])
    over = played(renderer, user, CALL, CALL, CALL, max_calls=1)
    assert over.ending == "calls"


def test_an_own_user_reads_the_question_the_messages_and_the_grade(renderer: ToolRenderer, tmp_path: Path):
    body = (
        "return None if episode.is_correct else "
        "f'{episode.question.text} {len(episode.messages)} {episode.messages[-1].role} {episode.answer} <|im_end|>'"
    )
    episode = played(renderer, own(tmp_path, body), WRONG, RIGHT)
    assert episode.messages[1] == EpisodeMessage("user", "2 * 3? 1 assistant #### 5 < |im_end|>")


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("return 7", " 7;"),
        ("return ' '", " ' ';"),
        ("return 'a\\ud800'", " 'a\\ud800', which UTF-8 cannot write"),
        ("return episode.anwser", "AttributeError in line 2: 'OpenEpisode' object has no attribute 'anwser'"),
        ("import json; json.loads('{')", "JSONDecodeError in line 2: "),
        ("raise SystemExit(0)", "SystemExit in line 2: 0"),
    ],
)
def test_a_user_that_fails_is_named(renderer: ToolRenderer, tmp_path: Path, body: str, expected: str, wording: Wording):
    user = own(tmp_path, body)
    with pytest.raises(InputError) as raised:
        played(renderer, user, WRONG)
    assert str(raised.value).startswith(f"{user}, on the question sums/1: ")
    assert expected in str(raised.value)
    wording(raised.value)


def test_questions_of_other_sets_have_no_user():
    users = Users({"sums": "check-again"})
    assert users.of(replace(QUESTION, question_id="other/1")) is None
    assert users.identity() == {"users": {"sums": "check-again"}, "files_of_users": ""}
    assert Users().identity() == {}


def test_a_changed_file_is_another_user(tmp_path: Path):
    user = own(tmp_path, "return None")
    before = Users({"sums": user}).identity()
    own(tmp_path, "return 'Why?'")
    assert Users({"sums": user}).identity() != before


def test_the_built_in_reply_has_nothing_of_the_answer():
    said = OpenEpisode(QUESTION, (EpisodeMessage("assistant", "#### 5"),), is_correct=False)
    assert said.answer == "#### 5"
    assert not re.search(r"\d", NOT_RIGHT)


# the template


@both
def test_the_context_is_that_of_the_template_with_the_earlier_thoughts_kept(thinking: bool):
    """Qwen3's template drops the thoughts before the last message of a user; nothing else differs."""
    renderer = make_renderer(thinking, ("calculator",))
    thought = "" if thinking else NO_THOUGHT
    first = "<think>\nA guess.\n</think>\n\n#### 5" if thinking else "#### 5"
    context = renderer.prompt("2 * 3?") + first + END + renderer.reply(" No.\nAgain? ")
    messages = [
        {"role": "user", "content": "2 * 3?"},
        {"role": "assistant", "content": first},
        {"role": "user", "content": " No.\nAgain? "},
    ]
    native: Any = renderer.tokenizer.apply_chat_template(
        messages, tools=list(renderer.schemas), tokenize=False, add_generation_prompt=True, enable_thinking=thinking
    )
    before, after = context.split("#### 5")
    assert re.sub(r"<think>\n.*?</think>\n\n", "", before, flags=re.DOTALL) + "#### 5" + after == native
    assert "</think>" in before
    assert after.endswith(HEADER + thought)


def test_a_template_without_later_messages_is_named(renderer: ToolRenderer, wording: Wording):
    from arc_refinery.models.tokenizers import load_tokenizer

    tokenizer: Any = load_tokenizer(renderer.tokenizer.name_or_path)
    tokenizer.chat_template = "{{ messages[0].content }}<|im_end|>"
    with pytest.raises(InputError, match="user's message") as raised:
        replace(renderer, tokenizer=tokenizer).reply("Again?")
    wording(raised.value)


SAID = ("Why?", NOT_RIGHT, "é 帽\n", NOTES, "<tool_response>\n6\n</tool_response>", "<think>\n")


@both
def test_only_sampled_tokens_carry_loss(thinking: bool, tmp_path: Path):
    """Episodes with random turns and replies, against a reading of the ids alone."""
    user = own(
        tmp_path, f"said = len(str(episode.messages)); return {SAID!r}[said % {len(SAID)}] if said % 4 else None"
    )
    renderer, rng = make_renderer(thinking), random.Random(0)
    prompt = renderer.ids(renderer.prompt(QUESTION.text))
    users = Users({"sums": user})
    episodes = [Rollout(list(prompt), Toolbox(folder=tmp_path), user=users.of(QUESTION)) for _ in range(60)]
    by_episode = {id(episode): list[int]() for episode in episodes}

    def sample(contexts: list[list[int]]) -> tuple[list[list[int]], None]:
        running = [episode for episode in episodes if episode.ending is None]
        assert contexts == [episode.prompt_ids + episode.completion_ids for episode in running]
        turns = [turn(rng, renderer, LIMITS.max_turn_tokens) for _ in contexts]
        for episode, ids in zip(running, turns, strict=True):
            by_episode[id(episode)] += ids
        return turns, None

    run_episodes(episodes, sample, renderer, LIMITS, frozenset(renderer.ids(END + OTHER_END)))
    for episode in episodes:
        ids = episode.prompt_ids + episode.completion_ids
        expected = loss_mask(ids, renderer.tokenizer, thinking, (END, OTHER_END), LIMITS.max_turn_tokens)
        assert [0] * len(prompt) + episode.mask == expected
        written = [token for token, is_sampled in zip(episode.completion_ids, episode.mask, strict=True) if is_sampled]
        assert written == by_episode[id(episode)][: len(written)]
        assert roles(episode)[-1] == "assistant"
        assert episode.n_user_messages <= LIMITS.max_user_messages
    assert {episode.n_user_messages for episode in episodes} == {0, 1, 2}
    assert any(roles(episode)[:4] == ["assistant", "user", "assistant", "tool"] for episode in episodes)


# the report


def test_messages_of_the_user_are_counted_and_are_not_results():
    messages = [EpisodeMessage(role, "text") for role in ("assistant", "tool", "assistant", "user", "assistant")]
    one = make_episode(messages=tuple(messages), calls=(Call("calculator", ""),), reward=1.0)
    texts = measure_texts(one)
    assert (texts.n_user_messages, texts.result_chars) == (1, (4,))
    assert texts.calls_of_turns == (1, 0, 0)
    none = make_episode(messages=tuple(messages[:1]), calls=(), reward=0.0)
    table = episodes_by_user_messages([one, none, none], [texts, *[measure_texts(none)] * 2])
    assert table.to_numpy().tolist() == [[0, 2, 0], [1, 1, 1]]
    _, lines, _ = _users_section(table.assign(arm="untrained"), ["untrained"], "users.csv")
    assert lines.splitlines()[0] == "| arm | messages per episode | episodes with 0 | episodes with 1 |"
    assert lines.splitlines()[2] == "| `untrained` | 0.33 | 2 (0.0 %) | 1 (100.0 %) |"


# the config


def content(**changes: Any) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((ROOT / "config/tool-use-demo.yaml").read_text())
    loaded["model"]["path"] = str(ROOT / loaded["model"]["path"])
    return loaded | changes


def test_a_set_may_have_its_own_user_and_an_arm_none(tmp_path: Path):
    changed = content(user="check-again")
    changed["data"]["train"][0]["user"] = own(tmp_path, "return None")
    changed["evaluation"]["arms"][0]["user"] = False
    mine = validate_experiment(changed, "mine.yaml", ToolUse)
    check_files(mine, "mine.yaml")
    training = stages.train(mine, "trained")
    assert training.users == {"arithmetic-train": f"{tmp_path}/users.py:reply"}
    assert inputs.grpo_inputs(mine)["users"] == [f"{tmp_path}/users.py"]
    assert stages.episodes(mine, "arithmetic", "untrained").users == {}
    assert stages.episodes(mine, "arithmetic", "sft").users == {"arithmetic": "check-again"}
    assert inputs.users_of_arm(mine, "arithmetic", "sft") == []
    plain = validate_experiment(content(), "mine.yaml", ToolUse)
    assert stages.conversations(mine).flags() == stages.conversations(plain).flags()
    assert stages.questions(mine, "arithmetic-train").flags() == stages.questions(plain, "arithmetic-train").flags()


@pytest.mark.parametrize(
    ("user", "symptom"),
    [("check-agian", "'check-agian'"), (True, " true;"), ({"user": "check-again"}, " {'user': 'check-again'};")],
)
def test_a_wrong_user_gives_one_line(user: Any, symptom: str, wording: Wording):
    with pytest.raises(ConfigError) as raised:
        validate_experiment(content(user=user), "mine.yaml")
    (line,) = str(raised.value).splitlines()
    assert line.startswith("mine.yaml: user")
    assert symptom in line
    wording(line)


@pytest.mark.parametrize(
    ("source", "place", "names"),
    [
        pytest.param(
            "def reply(episode, question):\n    return 1\n", "line 1: `reply` ", "episode", id="two arguments"
        ),
        pytest.param("\nclass reply:\n    pass\n", "line 2: `reply` ", "class", id="a class"),
        pytest.param("def answer(episode):\n    pass\n", "", "`reply`", id="not there"),
    ],
)
def test_code_that_cannot_be_a_user_is_refused_before_the_first_job(
    tmp_path: Path, source: str, place: str, names: str, wording: Wording
):
    path = tmp_path / "users.py"
    path.write_text(source)
    experiment = validate_experiment(content(user=f"{path}:reply"), "mine.yaml")
    with pytest.raises(ConfigError) as raised:
        check_files(experiment, "mine.yaml")
    begin = f"mine.yaml: user: {path}: {place}"
    assert str(raised.value).startswith(begin)
    assert names in str(raised.value).removeprefix(begin)
    wording(raised.value)
