"""On-policy turns on real chat templates: which tokens follow which, and which of them carry loss."""

from typing import TYPE_CHECKING, Any

import pytest
from checkout import TINY
from decided_turns import CHATML, Sampling, bytewise, ids_of
from factories import ARC, make_grid, make_prompt, make_task

from arc_refinery.arc.tasks import Pair
from arc_refinery.domains.arc.prompts import first_turn, load_template
from arc_refinery.domains.arc.records import Prompt
from arc_refinery.domains.prompts import next_turn
from arc_refinery.errors import ModelError
from arc_refinery.models.chat import Message
from arc_refinery.sandbox import Executor

if TYPE_CHECKING:  # they import transformers
    import torch
    from transformers import PreTrainedTokenizerBase

    from arc_refinery.refining.rollout import OnPolicyEpisode, TrainingPrompt

GRID, TURNED, TWICE = make_grid("12", "34"), make_grid("24", "13"), make_grid("43", "21")
TASK = make_task(train=(Pair(GRID, TURNED), Pair(TURNED, TWICE)), test=(Pair(GRID, TURNED),))
TEMPLATE = load_template("compact")
PROMPT = make_prompt(TASK, messages=tuple(first_turn(TASK, TEMPLATE)))

WRONG = "```python\nfrom common import *\n\ndef transform(grid):\n    grid = np.fliplr(grid)\n    return grid\n```"
RIGHT = "```python\nfrom common import *\n\ndef transform(grid):\n    grid = np.rot90(grid, 1)\n    return grid\n```"
RAISES = "```python\nfrom common import *\n\ndef transform(grid):\n    return grid[9, 9]\n```"


@pytest.fixture(scope="module")
def tokenizer() -> "PreTrainedTokenizerBase":
    from arc_refinery.models.tokenizers import load_tokenizer

    return load_tokenizer(TINY)


def asked(prompt: Prompt = PROMPT) -> "TrainingPrompt":
    from arc_refinery.refining.rollout import TrainingPrompt

    return TrainingPrompt.of(ARC, prompt)


def play(sampling: Sampling, executor: Executor, **changed: Any) -> "list[OnPolicyEpisode]":
    from arc_refinery.refining.rollout import OnPolicyTurns

    settings: dict[str, Any] = {
        "include_errors": False,
        "n_turns": 2,
        "history": "whole",
        "max_tokens": 1000,
        "mask_truncated": True,
    }
    settings |= {"domain": ARC, "prompts": [asked()], "executors": (executor,), "wording": TEMPLATE}
    rollout = OnPolicyTurns(**settings | changed)
    result = rollout(sampling.rows, sampling)
    assert set(result) == {"prompt_ids", "completion_ids", "env_mask", "logprobs", "episode"}
    episodes: list[OnPolicyEpisode] = result["episode"]
    return episodes


def test_the_second_prompt_is_what_sampling_would_have_read(tokenizer: Any, executor: Executor) -> None:
    first, second = (
        [*ids_of(tokenizer, WRONG), tokenizer.eos_token_id],
        [*ids_of(tokenizer, RIGHT), tokenizer.eos_token_id],
    )
    sampling = Sampling(tokenizer, asked().conversation, [first], [second])
    (episode,) = play(sampling, executor)
    feedback = tokenizer.decode(sampling.prompts_seen[1][0]).rpartition("<|user|>")[2].removesuffix("<|assistant|>")
    assert "1" in feedback and "3" in feedback
    conversation = next_turn(list(PROMPT.messages), WRONG, feedback)
    text = tokenizer.apply_chat_template(conversation, tokenize=False, add_generation_prompt=True)
    assert sampling.prompts_seen[1] == [ids_of(tokenizer, text)]
    prompt_ids = sampling.prompts_seen[0][0]
    assert prompt_ids + episode.completion_ids == ids_of(tokenizer, text) + second
    between = len(episode.completion_ids) - len(first) - len(second)
    assert episode.mask == [1] * len(first) + [0] * between + [1] * len(second)
    assert episode.logprobs == [-0.5] * len(first) + [0.0] * between + [-0.5] * len(second)
    assert [grade.correct_grids for grade in episode.grades] == [0.0, 1.0]
    assert not episode.is_truncated


def test_a_cut_answer_is_closed_and_its_tokens_carry_no_loss(tokenizer: Any, executor: Executor) -> None:
    cut = ids_of(tokenizer, WRONG)  # cut before its end token
    second = [*ids_of(tokenizer, RIGHT), tokenizer.eos_token_id]
    (episode,) = play(Sampling(tokenizer, asked().conversation, [cut], [second]), executor)
    assert episode.completion_ids[: len(cut) + 1] == [*cut, tokenizer.eos_token_id]
    assert sum(episode.mask) == len(second) and episode.is_truncated
    (unmasked,) = play(Sampling(tokenizer, asked().conversation, [cut], [second]), executor, mask_truncated=False)
    assert unmasked.mask[: len(cut) + 1] == [1] * len(cut) + [0]


@pytest.mark.parametrize(
    ("said", "changed", "n_answers"),
    [
        (RIGHT, {}, 1),  # nothing to refine
        ("I do not know", {}, 1),
        (RAISES, {}, 1),
        (RAISES, {"include_errors": True}, 2),
        (WRONG, {}, 2),
        (WRONG, {"max_tokens": 60}, 1),  # no room
    ],
)
def test_who_gets_a_second_turn(tokenizer: Any, executor: Executor, said: str, changed: Any, n_answers: int) -> None:
    first = [*ids_of(tokenizer, said), tokenizer.eos_token_id]
    sampling = Sampling(tokenizer, asked().conversation, [first], [[5, tokenizer.eos_token_id]])
    (episode,) = play(sampling, executor, **changed)
    assert len(episode.grades) == n_answers == len(sampling.prompts_seen)
    if n_answers == 1:
        assert (episode.completion_ids, episode.mask) == (first, [1] * len(first))


def test_episodes_of_a_batch_go_on_apart(tokenizer: Any, executor: Executor) -> None:
    end = tokenizer.eos_token_id
    right, wrong = [*ids_of(tokenizer, RIGHT), end], [*ids_of(tokenizer, WRONG), end]
    sampling = Sampling(tokenizer, asked().conversation, [right, wrong, right, wrong], [[7, end], [8, end]])
    episodes = play(sampling, executor)
    assert [len(episode.grades) for episode in episodes] == [1, 2, 1, 2]
    assert [episode.completion_ids[-2:] for episode in episodes[1::2]] == [[7, end], [8, end]]


# More than two answers

ASKED = f"<|user|>{PROMPT.messages[0]['content']}<|assistant|>"
MIRRORED = (
    "<|end|><|user|>Executing your program gave:"
    "\npair 1 wrong, pixel similarity 50%, given 2x2\n1 21\n2 43"
    "\npair 2 wrong, pixel similarity 50%, given 2x2\n1 42\n2 31"
    "\nWrite a corrected program.<|assistant|>"
)
LEFT = "```python\nfrom common import *\n\ndef transform(grid):\n    return grid\n```"
UNCHANGED = (
    "<|end|><|user|>Executing your program gave:"
    "\npair 1 wrong, pixel similarity 0%, given 2x2\n1 12\n2 34"
    "\npair 2 wrong, pixel similarity 0%, given 2x2\n1 24\n2 13"
    "\nWrite a corrected program.<|assistant|>"
)


def said(tokenizer: Any, *answers: str) -> list[list[int]]:
    return [[*ids_of(tokenizer, answer), tokenizer.eos_token_id] for answer in answers]


def test_with_the_whole_history_all_answers_carry_loss_in_one_context(tokenizer: Any, executor: Executor) -> None:
    answers = said(tokenizer, WRONG, LEFT, RIGHT)
    sampling = Sampling(tokenizer, asked().conversation, *([ids] for ids in answers))
    (episode,) = play(sampling, executor, n_turns=3)
    contexts = [ASKED, f"{ASKED}{WRONG}{MIRRORED}", f"{ASKED}{WRONG}{MIRRORED}{LEFT}{UNCHANGED}"]
    assert sampling.prompts_seen == [[ids_of(tokenizer, context)] for context in contexts]
    between = [ids_of(tokenizer, feedback)[1:] for feedback in (MIRRORED, UNCHANGED)]  # the end token was sampled
    assert episode.completion_ids == answers[0] + between[0] + answers[1] + between[1] + answers[2]
    first, second, third, after_first, after_second = map(len, (*answers, *between))
    assert episode.mask == [1] * first + [0] * after_first + [1] * second + [0] * after_second + [1] * third
    assert episode.logprobs == [-0.5 * sampled for sampled in episode.mask]
    assert [grade.correct_grids for grade in episode.grades] == [0.0, 0.0, 1.0]
    assert episode.answer == RIGHT


def test_with_the_last_answer_as_history_it_alone_carries_loss(tokenizer: Any, executor: Executor) -> None:
    answers = said(tokenizer, WRONG, LEFT, RIGHT)
    sampling = Sampling(tokenizer, asked().conversation, *([ids] for ids in answers))
    (episode,) = play(sampling, executor, n_turns=3, history="last")
    contexts = [ASKED, f"{ASKED}{WRONG}{MIRRORED}", f"{ASKED}{LEFT}{UNCHANGED}"]
    assert sampling.prompts_seen == [[ids_of(tokenizer, context)] for context in contexts]
    between = ids_of(tokenizer, UNCHANGED)[1:]
    assert episode.completion_ids == answers[1] + between + answers[2]  # after the prompt: the third context, answered
    assert episode.mask == [0] * (len(answers[1]) + len(between)) + [1] * len(answers[2])
    assert episode.sampled_ids == answers[2]
    assert episode.logprobs is not None
    assert episode.logprobs[-len(answers[2]) :] == [-0.5] * len(answers[2])
    assert len(episode.logprobs) == len(episode.mask)
    assert [grade.correct_grids for grade in episode.grades] == [0.0, 0.0, 1.0]


def test_with_the_last_answer_as_history_two_answers_both_carry_loss(tokenizer: Any, executor: Executor) -> None:
    wrong, right = said(tokenizer, WRONG, RIGHT)
    sampling = Sampling(tokenizer, asked().conversation, [wrong], [right])
    (episode,) = play(sampling, executor, n_turns=3, history="last")
    between = ids_of(tokenizer, MIRRORED)[1:]
    assert episode.completion_ids == wrong + between + right
    assert episode.mask == [1] * len(wrong) + [0] * len(between) + [1] * len(right)


def text_of(between: str) -> str:
    """The feedback in the tokens between two answers."""
    return between.removeprefix("<|end|><|user|>").removesuffix("<|assistant|>")


@pytest.mark.parametrize("history", ["whole", "last"])
def test_rewards_read_the_answer_before_the_last_one(tokenizer: Any, executor: Executor, history: str) -> None:
    from arc_refinery.refining.config import Grpo
    from arc_refinery.refining.config.rewards import ATTEMPT_REWARDS
    from arc_refinery.refining.scoring import Scorer
    from arc_refinery.training.rewards import Reward

    wrong, left, right = said(tokenizer, WRONG, LEFT, RIGHT)
    sampling = Sampling(tokenizer, asked().conversation, [wrong, right], [left], [right])
    episodes = play(sampling, executor, n_turns=3, history=history)
    reward = Reward(Grpo(learning_rate=1.0, rewards=["near"]).rewards, ATTEMPT_REWARDS)
    scorer = Scorer(Grpo(learning_rate=1.0), reward, ARC, (executor,), [], [asked()])
    refined, first = scorer.attempts([0, 0], [], [], episodes)
    assert (refined.feedback, refined.parent_reward) == (text_of(UNCHANGED), 0.0)
    assert refined.parent_program == LEFT.removeprefix("```python\n").removesuffix("\n```") + "\n"
    assert refined.parent_grade is episodes[0].grades[1]
    assert (first.feedback, first.parent_reward, first.parent_program, first.parent_grade) == ("", None, None, None)
    # All 12 words and signs of LEFT are in RIGHT, whose 10 others are `grid = np . rot90 ( grid , 1 )`
    assert reward.values([refined, first]) == {"near": [0.5 + 0.5 * 2 * 12 / (12 + 22), 1.0]}


def test_a_twin_is_the_feedback_on_another_wrong_answer_of_the_group(tokenizer: Any, executor: Executor) -> None:
    wrong, left, right = said(tokenizer, WRONG, LEFT, RIGHT)
    refined = [[5, tokenizer.eos_token_id]]
    first = [wrong, left, right, wrong, left, left]
    expected = [UNCHANGED, MIRRORED, "", UNCHANGED, UNCHANGED, UNCHANGED]  # the last two have none but their own
    sampling = Sampling(tokenizer, asked().conversation, first, refined * 5)
    sampling.rows = [row | {"prompt_index": int(index > 3)} for index, row in enumerate(sampling.rows)]
    episodes = play(sampling, executor, prompts=[asked(), asked()], feedback="twin")
    assert [episode.feedback for episode in episodes] == list(map(text_of, expected))
    for episode, answer, between in zip(episodes, first, expected, strict=True):
        after = ids_of(tokenizer, between)[1:] + refined[0] if between else []
        assert episode.completion_ids == answer + after


@pytest.mark.parametrize("history", ["whole", "last"])
def test_a_solved_answer_ends_its_episode(tokenizer: Any, executor: Executor, history: str) -> None:
    wrong, right, left = said(tokenizer, WRONG, RIGHT, LEFT)
    turns = [[right, wrong, wrong, wrong], [wrong, right, left], [left, right], [wrong]]
    sampling = Sampling(tokenizer, asked().conversation, *turns)
    episodes = play(sampling, executor, n_turns=4, history=history)
    assert [len(prompts) for prompts in sampling.prompts_seen] == [4, 3, 2, 1]
    assert [len(episode.grades) for episode in episodes] == [1, 4, 2, 3]
    assert [episode.answer for episode in episodes] == [RIGHT, WRONG, RIGHT, RIGHT]


def test_no_answer_is_sampled_where_all_are_solved(tokenizer: Any, executor: Executor) -> None:
    (right,) = said(tokenizer, RIGHT)
    sampling = Sampling(tokenizer, asked().conversation, [right])
    (episode,) = play(sampling, executor, n_turns=3)
    assert (len(sampling.prompts_seen), episode.completion_ids) == (1, right)


def test_an_episode_without_room_for_another_answer_ends(tokenizer: Any, executor: Executor) -> None:
    answers = said(tokenizer, WRONG, LEFT, RIGHT)
    third_context = len(ids_of(tokenizer, f"{ASKED}{WRONG}{MIRRORED}{LEFT}{UNCHANGED}"))
    for history, max_tokens, n_answers in (
        ("whole", third_context - 1, 2),
        ("whole", third_context, 3),
        ("last", third_context - 1, 3),
    ):
        sampling = Sampling(tokenizer, asked().conversation, *([ids] for ids in answers))
        (episode,) = play(sampling, executor, n_turns=3, history=history, max_tokens=max_tokens)
        assert len(episode.grades) == n_answers


@pytest.mark.parametrize(("history", "carries_loss"), [("whole", [1, 0, 1]), ("last", [0, 0, 1])])
def test_a_cut_answer_carries_no_loss(
    tokenizer: Any, executor: Executor, history: str, carries_loss: list[int]
) -> None:
    """The second of three answers."""
    first, _, third = answers = said(tokenizer, WRONG, LEFT, RIGHT)
    answers[1].pop()
    sampling = Sampling(tokenizer, asked().conversation, *([ids] for ids in answers))
    (episode,) = play(sampling, executor, n_turns=3, history=history)
    assert sum(episode.mask) == len(first) * carries_loss[0] + len(third)
    assert episode.is_truncated == (history == "whole")  # else what counts is the last answer


def test_chatml_puts_a_line_break_after_the_sampled_end() -> None:
    from arc_refinery.refining.rollout import Continuation

    tokenizer = bytewise(CHATML, "<|im_start|>", "<|im_end|>")
    continuation = Continuation(tokenizer, [tokenizer.eos_token_id])
    ended, cut = ids_of(tokenizer, "x<|im_end|>"), ids_of(tokenizer, "x")
    after = "\n<|im_start|>user\nno<|im_end|>\n<|im_start|>assistant\n"
    assert continuation.ids(asked(), ended, "no") == ids_of(tokenizer, after)
    assert continuation.ids(asked(), cut, "no") == ids_of(tokenizer, "<|im_end|>" + after)


def test_a_second_answer_begins_as_the_first_did() -> None:
    from arc_refinery.models.chat import begin_answers
    from arc_refinery.refining.rollout import Continuation

    tokenizer = bytewise(CHATML, "<|im_start|>", "<|im_end|>")
    begin_answers(tokenizer, "Sure:")  # as the environment does
    begun = (*PROMPT.messages, Message(role="assistant", content="Sure:"))
    sure = asked(make_prompt(TASK, messages=begun))
    ids = Continuation(tokenizer, [tokenizer.eos_token_id]).ids(sure, ids_of(tokenizer, "x<|im_end|>"), "no")
    assert tokenizer.decode(ids) == "\n<|im_start|>user\nno<|im_end|>\n<|im_start|>assistant\nSure:"


def test_a_template_that_does_not_end_answers_is_refused() -> None:
    from arc_refinery.refining.rollout import Continuation

    tokenizer = bytewise("{% for m in messages %}{{ m['role'] + ': ' + m['content'] + '\n' }}{% endfor %}", "<end>")
    with pytest.raises(ModelError, match="does not end an answer"):
        Continuation(tokenizer, [tokenizer.eos_token_id]).ids(asked(), [1], "no")


def test_answers_that_would_not_end_are_refused_before_a_trainer_starts_an_engine(executor: Executor) -> None:
    from arc_refinery.config import Lengths
    from arc_refinery.refining.config import Grpo, Refinement
    from arc_refinery.refining.environment import RefineEnvironment

    tokenizer = bytewise(CHATML, "<|im_start|>", "<|im_end|>")
    lengths = Lengths(max_completion_length=8, max_seq_length=64)
    grpo = Grpo(learning_rate=1e-4)
    environment = RefineEnvironment(
        prompts=[asked()],
        seed=0,
        prompts_hash="",
        training=grpo,
        lengths=lengths,
        domain=ARC,
        wording=TEMPLATE,
        refinement=Refinement(),
        executors=(executor,),
    )
    with pytest.raises(ModelError, match=r"'<\|im_end\|>\\n' follows it, and completions end at \['<\|im_start\|>'\]"):
        environment.trainer(tokenizer, [tokenizer.convert_tokens_to_ids("<|im_start|>")])


@pytest.mark.model
@pytest.mark.parametrize(("history", "carries_loss"), [("whole", [0, 1, 2]), ("last", [2])])
def test_log_probabilities_are_those_of_sampling_each_answer_alone(
    tokenizer: Any, executor: Executor, tiny_network: Any, history: str, carries_loss: list[int]
) -> None:
    """One forward pass over the episode gives those of a pass over each answer that carries loss, and its context."""
    import torch

    answers = said(tokenizer, WRONG, LEFT, RIGHT)
    sampling = Sampling(tokenizer, asked().conversation, *([ids] for ids in answers))
    (episode,) = play(sampling, executor, n_turns=3, history=history)

    def logprobs(before: list[int], tokens: list[int]) -> "torch.Tensor":
        ids = torch.tensor([before + tokens])
        with torch.no_grad():
            logits = tiny_network(ids).logits[0, len(before) - 1 : -1]
        values: torch.Tensor = logits.log_softmax(-1).gather(1, ids[0, len(before) :, None])[:, 0]
        return values

    whole = logprobs(sampling.prompts_seen[0][0], episode.completion_ids)[torch.tensor(episode.mask).bool()]
    alone = torch.cat([logprobs(sampling.prompts_seen[turn][0], answers[turn]) for turn in carries_loss])
    assert torch.allclose(whole, alone, atol=1e-4)
