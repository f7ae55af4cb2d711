"""The environment of tool use: what a step is measured by, which questions are trained on, which tools TRL is shown."""

import inspect
from copy import copy
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from checkout import TINY_TOOLS
from factories import make_question

from arc_refinery.errors import InputError
from arc_refinery.records.tool_use import Ending, EpisodeMessage, Question
from arc_refinery.tool_use.config import EpisodeTerm, Generation, ToolGrpo
from arc_refinery.tool_use.config.experiment import ToolName
from arc_refinery.tool_use.config.rewards import CORRECT, REWARDS
from arc_refinery.tool_use.episodes.episodes import Rollout
from arc_refinery.tool_use.episodes.rendering import ToolRenderer
from arc_refinery.tool_use.tools.toolbox import CallResult, Toolbox
from arc_refinery.training.rewards import Reward

if TYPE_CHECKING:  # they import torch
    from arc_refinery.tool_use.training.environment import EpisodeEnvironment, ToolEnvironment

NOBODY: Any = None  # no program is asked for, so none is executed
GENERATION = Generation(max_turn_tokens=20, max_episode_tokens=50)


@cache
def tokenizer() -> Any:
    from arc_refinery.models.tokenizers import load_tokenizer

    return load_tokenizer(TINY_TOOLS)


# rewards and figures


def ended_episode(
    question: Question, turn: str, ids: str, mask: str, ending: Ending, *results: CallResult
) -> "EpisodeEnvironment":
    """An episode that has ended; ids and mask are a digit each."""
    from arc_refinery.tool_use.training.environment import EpisodeEnvironment

    environment = EpisodeEnvironment({"q": question}, lambda _: Toolbox())
    environment.reset(question_id="q")
    environment.episode = Rollout(
        [1],
        environment.toolbox,
        [int(token) for token in ids],
        [int(value) for value in mask],
        None,
        [EpisodeMessage("assistant", turn)],
        list(results),
        ending,
    )
    return environment


def test_rewards_and_figures_of_a_step():
    """Two questions with two episodes each, computed by hand."""
    from arc_refinery.tool_use.training.environment import Rewards

    six, seven = make_question(reference="6"), make_question(reference="7")
    good, wrong = CallResult("6", "calculator"), CallResult("Error: ...", "", "malformed")
    environments = [
        ended_episode(six, "<think>\n2*3\n</think>\n\n#### 6", "111119", "111100", "answer", good, wrong, good),
        ended_episode(six, "#### 6", "1234", "1111", "answer"),
        ended_episode(seven, "#### 7", "12", "11", "truncated"),  # right, but without its end
        ended_episode(seven, "#### 7", "111222", "111001", "tokens", wrong),  # its last turn called something
    ]
    logged: dict[str, float] = {}
    rewards = Rewards((NOBODY, NOBODY), 2, 16, Reward(CORRECT, REWARDS))
    scored = rewards(environments=environments, log_metric=logged.__setitem__, prompts=[], completions=[])
    assert [completion.reward for completion in scored.completions] == [1.0, 1.0, 0.0, 0.0]
    assert {name: logged[name] for name in ("share/calling", "share/answered", "calls", "share/faulty_calls")} == {
        "share/calling": 2 / 4,
        "share/answered": 2 / 4,
        "calls": 4 / 4,
        "share/faulty_calls": 2 / 4,
    }
    assert (logged["share/solved"], logged["share/truncated"]) == (2 / 4, 2 / 4)
    assert logged["share/zero_variance"] == 1.0
    # sampled tokens alone: 1111 and 1234; 12 and 1112
    assert logged["unique_tokens/finished"] == pytest.approx((1 / 4 + 4 / 4) / 2)
    assert logged["unique_tokens/truncated"] == pytest.approx((2 / 2 + 2 / 4) / 2)


def test_the_reward_is_a_sum_of_terms_and_each_is_logged():
    from arc_refinery.tool_use.training.environment import Rewards

    six = make_question(reference="6")
    wrong = CallResult("Error: ...", "", "malformed")
    environments = [
        ended_episode(six, "#### 6", "1234", "1111", "answer"),  # right, marked, 4 of 16 tokens
        ended_episode(six, "It is 6.", "12345678", "11111111", "answer"),  # right, not marked, 8 of 16 tokens
        ended_episode(six, "#### 5", "12", "11", "answer"),  # wrong, marked, 2 of 16
        ended_episode(six, "#### 6", "1212", "1011", "answer", wrong),  # right, but a call cannot be read; 3 of 16
    ]
    terms = [
        EpisodeTerm.model_validate(term)
        for term in ("correct", {"reward": "format", "weight": 0.5}, {"reward": "length", "weight": -0.25})
    ]
    logged: dict[str, float] = {}
    rewards = Rewards((NOBODY, NOBODY), 2, 16, Reward(terms, REWARDS))
    scored = rewards(environments=environments, log_metric=logged.__setitem__)
    values = [completion.reward for completion in scored.completions]
    assert values == pytest.approx([1 + 0.5 - 0.25 * 4 / 16, 1 - 0.25 * 8 / 16, 0.5 - 0.25 * 2 / 16, 1 - 0.25 * 3 / 16])
    assert {name: value for name, value in logged.items() if name.startswith("reward_term/")} == pytest.approx(
        {"reward_term/correct": 3 / 4, "reward_term/format": 2 / 4, "reward_term/length": (4 + 8 + 2 + 3) / 16 / 4}
    )
    assert logged["share/solved"] == 3 / 4  # whatever the reward is


def test_without_any_call_there_is_no_share_of_faulty_ones():
    from arc_refinery.tool_use.training.environment import Rewards

    logged: dict[str, float] = {}
    episode = ended_episode(make_question(reference="6"), "#### 5", "12", "11", "answer")
    rewards = Rewards((NOBODY, NOBODY), 2, 16, Reward(CORRECT, REWARDS))
    scored = rewards(environments=[episode, episode], log_metric=logged.__setitem__)
    assert [completion.reward for completion in scored.completions] == [0.0, 0.0]
    assert (logged["calls"], logged["share/calling"]) == (0.0, 0.0)
    assert "share/faulty_calls" not in logged


# held-out prompts


def split(n: int, n_heldout: int, seed: int = 0) -> tuple[list[int], list[int]]:
    """Which of n rows are trained on, and which are kept out."""
    from arc_refinery.training.trainer import TrainingData

    data = TrainingData.split([{"prompt": "?", "place": index} for index in range(n)], n_heldout, seed)
    return list(data.train["place"]), list(data.heldout["place"]) if data.heldout else []


def test_some_rows_are_kept_out_and_all_others_trained_on_in_their_order():
    train, heldout = split(40, 15)
    assert (len(train), len(heldout)) == (25, 15)
    assert sorted(train + heldout) == list(range(40))
    assert (train, heldout) == (sorted(train), sorted(heldout))
    assert heldout != list(range(15)) and heldout != list(range(25, 40))  # at random


def test_the_seed_decides_which_rows_are_kept_out():
    assert split(40, 15) == split(40, 15)
    assert split(40, 15, seed=1) != split(40, 15)


def test_none_may_be_kept_out_but_not_all():
    from arc_refinery.training.trainer import TrainingData

    assert split(3, 0) == ([0, 1, 2], [])
    assert TrainingData.split([{"place": 0}], 0, 0).heldout is None
    assert len(split(3, 2)[0]) == 1
    for n_heldout in (3, 4):
        message = f"n_heldout = {n_heldout} leaves nothing to train on: there are 3 prompts"
        with pytest.raises(InputError, match=message):
            split(3, n_heldout)


# questions


def environment(
    questions: list[Question],
    window: int = 512,
    generation: Generation = GENERATION,
    tools: tuple[ToolName, ...] = ("calculator",),
    files_hash: str = "",
    **changed: Any,
) -> "ToolEnvironment":
    from arc_refinery.tool_use.training.environment import ToolEnvironment, fitting

    training = ToolGrpo(learning_rate=1e-3, max_grad_norm=1.0, save_steps=1, **changed)
    open_toolbox = lambda _: Toolbox(tools)  # noqa: E731
    renderer = ToolRenderer(tokenizer(), Toolbox(tools).schemas, generation.enable_thinking, generation.stop_token)
    return ToolEnvironment(
        questions=fitting(questions, renderer, open_toolbox, window, generation.max_episode_tokens),
        renderer=renderer,
        training=training,
        generation=generation,
        open_toolbox=open_toolbox,
        names=tools,
        executors=(NOBODY, NOBODY),
        files_hash=files_hash,
        seed=0,
    )


def test_the_terms_of_the_reward_are_in_the_identity(tmp_path: Path):
    path = tmp_path / "mine.py"
    path.write_text("def score(episode):\n    return 1.0\n")

    def identity(*terms: str) -> dict[str, Any]:
        environment_with_terms = environment(asking("1?"))
        environment_with_terms.reward = Reward([EpisodeTerm.model_validate(term) for term in terms], REWARDS)
        return environment_with_terms.identity()

    assert identity("correct") == environment(asking("1?")).identity()
    before = identity("correct", f"{path}:score")
    assert before != identity("correct")
    path.write_text("def score(episode):\n    return 2.0\n")
    assert identity("correct", f"{path}:score") != before


def asking(*texts: str) -> list[Question]:
    return [make_question(question_id=f"q{index}", text=text) for index, text in enumerate(texts)]


def prompt_tokens(text: str) -> int:
    """Of Qwen3's template: the system's turn, the question, the header."""
    renderer = ToolRenderer(tokenizer(), Toolbox(("calculator",)).schemas, True, "<|im_end|>")
    return len(renderer.ids(renderer.prompt(text)))


def test_a_question_is_left_out_where_its_prompt_and_an_episode_do_not_fit():
    short, longer = "1?", "1 + 2 + 3?"
    window = prompt_tokens(longer) + GENERATION.max_episode_tokens
    own = environment(asking(short, longer), window)
    assert list(own.data.train["question_id"]) == ["q0", "q1"]
    own = environment(asking(short, longer), window - 1)
    assert list(own.data.train["question_id"]) == ["q0"]
    assert list(own.data.train["prompt"]) == [[{"role": "user", "content": short}]]


def test_where_no_question_is_left_the_error_says_what_to_change():

    n = prompt_tokens("12?")
    with pytest.raises(InputError) as raised:
        environment(asking("12?", "34?"), n - 1 + GENERATION.max_episode_tokens)
    for fact in ("none of 2 prompts fits", f"{n} tokens", f"leaves {n - 1}.", "generation.max_episode_tokens"):
        assert fact in str(raised.value)


def test_where_there_was_none_to_begin_with_the_error_says_so():

    with pytest.raises(InputError, match="there are no training questions"):
        environment([])


def test_questions_are_kept_out_of_training():
    own = environment(asking(*(f"{n}?" for n in range(10))), n_heldout=3)
    train, heldout = set(own.data.train["question_id"]), set(own.data.heldout["question_id"])  # type: ignore[index]
    assert (len(train), len(heldout), train & heldout) == (7, 3, set())
    assert train | heldout == {question.question_id for question in own.questions}  # environments find them all


def test_what_decides_the_adapter_is_in_the_identity():
    questions = asking("1?", "2?")
    before = environment(questions).identity()
    assert environment(questions).identity() == before
    others = [
        environment(asking("1?", "3?")),
        environment([questions[0], make_question(questions[1].question_id, questions[1].text, "8")]),
        environment(questions[:1]),
        environment(questions, tools=("calculator", "execute_code")),
        environment(questions, files_hash="of other files"),
        *(
            environment(questions, generation=GENERATION.model_copy(update=changed))
            for changed in (
                {"max_turn_tokens": 21},
                {"max_episode_tokens": 51},
                {"max_calls": 9},
                {"max_calls_per_turn": 5},
                {"max_result_chars": 100},
                {"enable_thinking": False},
            )
        ),
    ]
    identities = [before, *(other.identity() for other in others)]
    assert len({repr(identity) for identity in identities}) == len(identities)


def test_how_the_evaluation_samples_is_not_in_the_identity():
    greedy = GENERATION.model_copy(update={"temperature": 0.0, "top_p": 0.5})
    assert environment(asking("1?"), generation=greedy).identity() == environment(asking("1?")).identity()


def test_trl_is_told_where_a_turn_ends_and_whether_to_think():
    quick = GENERATION.model_copy(update={"enable_thinking": False})
    stops = {
        "transformers": {},  # it stops at the tokenizer's end token, which is set to the stop token
        "vllm-colocate": {"stop_token_ids": tokenizer().convert_tokens_to_ids(["<|im_end|>"])},
    }
    for sampler, expected in stops.items():
        assert environment(asking("1?"), generation=quick, sampler=sampler).arguments() == {
            "max_completion_length": 20,
            "chat_template_kwargs": {"enable_thinking": False},
            "generation_kwargs": expected,
        }


def test_a_chat_template_that_trl_does_not_know_is_named_before_anything_is_trained():
    from arc_refinery.tool_use.training.environment import check_template

    check_template(tokenizer())
    assert getattr(tokenizer(), "response_template", None) is None  # asking leaves no trace
    other = copy(tokenizer())
    other.chat_template = str(tokenizer().chat_template).replace("You may call", "You can call")
    with pytest.raises(InputError, match=f"^{TINY_TOOLS}: TRL cannot train with its chat template"):
        check_template(other)


# environments


@pytest.mark.parametrize("names", [(), ("calculator",), ("read_file", "calculator", "execute_code")])
def test_trl_finds_the_tools_and_nothing_else(names: tuple[ToolName, ...]):
    """Read as TRL reads an environment: public methods of the class but `reset`, schemas from their docstrings."""
    from transformers.utils import get_json_schema

    from arc_refinery.tool_use.training.environment import environment_class

    env = environment_class(Toolbox(names).signatures)({}, lambda _: Toolbox())
    methods = [name for name, _ in inspect.getmembers(type(env), inspect.isfunction) if not name.startswith("_")]
    assert sorted(methods) == sorted([*names, "reset"])
    schemas = [get_json_schema(getattr(env, name)) for name in methods if name != "reset"]
    assert schemas == Toolbox(names).schemas


def test_a_tool_of_an_environment_is_that_of_its_question(tmp_path: Path):
    from arc_refinery.tool_use.training.environment import environment_class

    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "notes.txt").write_text(f"notes of {name}")
    questions = {name: make_question(question_id=name) for name in ("a", "b")}
    environment: Any = environment_class(Toolbox(("calculator", "read_file")).signatures)(
        questions, lambda question: Toolbox(folder=tmp_path / question.question_id)
    )
    for name in ("a", "b", "a"):
        assert environment.reset(question_id=name, prompt=[]) is None  # a text would be added to the prompt
        assert (environment.question, environment.read_file(path="notes.txt")) == (questions[name], f"notes of {name}")
    assert environment.calculator(expression="2*3") == "6"
    assert environment.calculator(expression="1/0") == "Error: division by zero."
