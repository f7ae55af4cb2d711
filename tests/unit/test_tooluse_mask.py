"""Which tokens carry loss, token by token, against a reading of the ids alone: in episodes, in SFT, in TRL's GRPO."""

import json
import random
import shutil
from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from trl.chat_template_utils import qwen3_training_chat_template

from arc_refinery.config import Generation, Guard, Lora, Network, Sandbox, ToolTraining
from arc_refinery.config.tool_use import ToolSft
from arc_refinery.sandbox import Executor, Limits
from arc_refinery.tokenizers import load_tokenizer
from arc_refinery.tooluse.data import gsm8k_question, mbpp_question
from arc_refinery.tooluse.demonstrations import conversation, demonstration
from arc_refinery.tooluse.episodes import Play, play
from arc_refinery.tooluse.generator import gsm8k_row, mbpp_row
from arc_refinery.tooluse.questions import Question
from arc_refinery.tooluse.rendering import Renderer
from arc_refinery.tooluse.tools import Fault, Toolbox, ToolName
from arc_refinery.training import grpo, sft
from arc_refinery.training.tool_use import CallingTools, ToolTrainer

TINY_TOOLS = str(Path(__file__).parents[2] / "workflow/models/tiny-tools")
NETWORK = Network(path=TINY_TOOLS, window=1024)
END, OTHER_END = "<|im_end|>", "<|endoftext|>"
HEADER, NO_THOUGHT = "<|im_start|>assistant\n", "<think>\n\n</think>\n\n"
ALL: tuple[ToolName, ...] = ("calculator", "execute_code", "read_file")
LIMITS = Generation(max_turn_tokens=120, max_episode_tokens=500, max_calls=4)

pytestmark = pytest.mark.usefixtures("on_a_cpu")
both = pytest.mark.parametrize("thinking", [True, False])


def renderer(thinking: bool, tools: tuple[ToolName, ...] = ALL) -> Renderer:
    return Renderer(load_tokenizer(TINY_TOOLS), Toolbox(tools).schemas, thinking, END)


def loss_mask(
    ids: Sequence[int], tokenizer: Any, thinking: bool, ends: Collection[str] = (END,), longest_turn: int = 10**6
) -> list[int]:
    """What a model sampled, read from the ids of a prompt and all that follows; nothing else is known of them.

    A turn begins behind the assistant's header, and without thinking behind the empty thought that follows it. It goes
    on to the first token that ends a turn, or to the longest turn's length: what ends it after that was added.
    """
    header = HEADER if thinking else HEADER + NO_THOUGHT
    mask, read, left = [], "", 0
    for token in ids:
        text = tokenizer.decode([token])
        mask.append(int(left > 0))
        if left:
            left = 0 if text in ends else left - 1
        else:
            read = text if text == "<|im_start|>" else read + text
            left, read = (longest_turn, "") if read == header else (0, read)
    return mask


# episodes with turns that were written beforehand


def test_one_episode_by_hand():
    """A call that is cut after eight tokens, its result, an answer: each token with what it is."""
    made = renderer(True, ())
    tokenizer = made.tokenizer
    turns = iter([[made.ids("<tool_call>\n1234567")], [made.ids(f"42{END}")]])
    episode = Play(made.ids(made.prompt("9?")), Toolbox(()))
    limits = Generation(max_turn_tokens=8, max_episode_tokens=200)
    play([episode], lambda contexts: (next(turns), None), made, limits, frozenset(made.ids(END)))
    result = [tokenizer.decode([one]) for one in made.ids(f"\n{episode.results[0].text}\n")]
    given = ["<|im_start|>", "user", "\n", "9", "?", END, "\n", "<|im_start|>", "assistant", "\n"]
    cut_turn = ["<tool_call>", "\n", "1", "2", "3", "4", "5", "6"]
    told = [END, "\n", "<|im_start|>", "user", "\n", "<tool_response>", *result, "</tool_response>", END, "\n"]
    told += ["<|im_start|>", "assistant", "\n"]
    answer = ["4", "2", END]
    ids = episode.prompt_ids + episode.completion_ids
    by_hand = [0] * len(given) + [1] * len(cut_turn) + [0] * len(told) + [1] * len(answer)
    assert [tokenizer.decode([token]) for token in ids] == given + cut_turn + told + answer
    assert [0] * len(given) + episode.mask == by_hand
    assert loss_mask(ids, tokenizer, True, longest_turn=8) == by_hand


THOUGHTS = ("", NO_THOUGHT, "<think>\nThere are 2 hats: é, 帽.\n</think>\n\n", "<think>\n<tool_call>no\n</think>\n\n")
TEXTS = ("", "So:\n", "<|im_start|>assistant\nI am the model.\n")
CALLS = (
    '<tool_call>\n{"name": "calculator", "arguments": {"expression": "12*3"}}\n</tool_call>',
    '<tool_call>\n{"name": "calculator", "arguments": {"expression": "1/0"}}\n</tool_call>',
    '<tool_call>\n{"name": "read_file", "arguments": {"path": "notes.txt"}}\n</tool_call>',
    '<tool_call>\n{"name": "calculator", "arguments": {"x": "1"}}\n</tool_call>',
    '<tool_call>\n{"name": "search", "arguments": {}}\n</tool_call>',
    "<tool_call>\n12*3\n</tool_call>",
    "<tool_call>\n",
)
# What would be another turn of the model if it came through to the ids as it is
NOTES = f"{END}\n{HEADER}{NO_THOUGHT}#### 1{END}"


def spelt(text: str, rng: random.Random, made: Renderer) -> list[int]:
    """The ids of a text, or of its pieces, cut anywhere: a model need not spell as its tokenizer does."""
    if rng.random() < 0.5:
        return made.ids(text)
    borders = [0, *sorted(rng.sample(range(len(text) + 1), len(text) // 3)), len(text)]
    return [token for start, end in pairwise(borders) for token in made.ids(text[start:end])]


def turn(rng: random.Random, made: Renderer, longest: int) -> list[int]:
    """A turn of any kind: with calls or without, right or wrong, ended by itself or by the limit on its length."""
    text = rng.choice(THOUGHTS) + rng.choice(TEXTS)
    if rng.random() < 0.7:
        text += "\n".join(rng.choices(CALLS, k=rng.randint(1, 3)))
    else:
        text += f"#### {rng.randrange(100)}"
    ids = spelt(text, rng, made)
    if rng.random() < 0.2:
        return [*ids, *made.ids(" and on" * longest)][:longest]
    return [*ids, *made.ids(rng.choice((END, END, OTHER_END)))][:longest]


@both
def test_of_an_episode_all_that_was_sampled_carries_loss_and_nothing_else(thinking: bool, tmp_path: Path):
    (tmp_path / "notes.txt").write_text(NOTES)
    made, rng = renderer(thinking), random.Random(0)
    prompt = made.ids(made.prompt("How many hats?"))
    episodes = [Play(list(prompt), Toolbox(folder=tmp_path, max_calls_per_turn=2)) for _ in range(300)]
    by_prompt = {id(episode): list[int]() for episode in episodes}

    def sample(contexts: list[list[int]]) -> tuple[list[list[int]], None]:
        turns = [turn(rng, made, LIMITS.max_turn_tokens) for _ in contexts]
        for episode, ids in zip([one for one in episodes if one.ending is None], turns, strict=True):
            by_prompt[id(episode)] += ids
        return turns, None

    play(episodes, sample, made, LIMITS, frozenset(made.ids(END + OTHER_END)))
    for episode in episodes:
        ids = episode.prompt_ids + episode.completion_ids
        expected = loss_mask(ids, made.tokenizer, thinking, (END, OTHER_END), LIMITS.max_turn_tokens)
        assert [0] * len(prompt) + episode.mask == expected
        written = [token for token, is_sampled in zip(episode.completion_ids, episode.mask, strict=True) if is_sampled]
        assert written == by_prompt[id(episode)][: len(written)]
        assert len(written) == len(by_prompt[id(episode)]) or len(ids) == len(prompt) + LIMITS.max_episode_tokens
    assert {episode.ending for episode in episodes} == {"answer", "truncated", "tokens", "calls"}
    results = [result for episode in episodes for result in episode.results]
    assert {result.fault for result in results} == {*get_args(Fault), None}
    assert any("#### 1" in result.text for result in results)  # the notes were read


# supervised fine-tuning


@pytest.fixture(scope="module")
def toolbox() -> Iterator[Toolbox]:
    with Executor(1, Limits(cpu_seconds=1.0, wall_seconds=20.0, memory_mb=256)) as executor:
        yield Toolbox(executor=executor)


def questions(n: int) -> list[Question]:
    sums = [gsm8k_question(gsm8k_row(1 + place % 3, "train", 0, place), f"sum-{place}", "") for place in range(n)]
    programs = [mbpp_question(mbpp_row(1, "train", 0, place), f"program-{place}", "") for place in range(n // 4)]
    return sums + programs


@both
def test_sft_gets_labels_on_what_the_model_is_to_write(thinking: bool, toolbox: Toolbox, tmp_path: Path):
    made = renderer(thinking)
    asked = [(question, share) for share in (0.0, 1.0) for question in questions(16)]
    told = [conversation(question, toolbox, made, share, 0) for question, share in asked]
    rows = [sft.Row(f"{place}", one.segments) for place, one in enumerate(told) if one is not None]
    assert len(rows) > 30
    training = ToolSft(rows_per_step=len(rows), learning_rate=1e-3, max_grad_norm=1.0, epochs=1, save_steps=1)
    trainer = sft.open_trainer(rows, NETWORK, Lora(lora_r=2), training, 0, tmp_path)
    (batch,) = trainer.get_train_dataloader()
    learned = []
    for ids, labels, attended in zip(batch["input_ids"], batch["labels"], batch["attention_mask"], strict=True):
        assert not (labels != -100)[attended == 0].any()
        ids, labels = ids[attended == 1].tolist(), labels[attended == 1]
        mask = (labels != -100).int().tolist()
        assert mask == loss_mask(ids, made.tokenizer, thinking)
        assert labels[labels != -100].tolist() == [
            token for token, is_learned in zip(ids, mask, strict=True) if is_learned
        ]
        learned.append(made.tokenizer.decode(ids))
    assert sorted(learned) == sorted("".join(segment.text for segment in row.segments) for row in rows)
    assert any("<tool_response>" in text for text in learned)


@both
def test_demonstrations_have_the_mask_of_trls_template_for_qwen3(thinking: bool, toolbox: Toolbox):
    """But for three things: it counts the newline behind an end, the empty thought, and ends with a newline."""
    made = renderer(thinking)
    tokenizer = made.tokenizer
    newline, nothing_thought = made.ids("\n"), made.ids(NO_THOUGHT)
    for question in questions(16):
        messages = demonstration(question, toolbox, calls=question.kind == "gsm8k")
        assert messages is not None
        if not thinking:
            messages = [one | {"content": one["content"].rpartition("</think>\n\n")[2]} for one in messages]
        whole: Any = tokenizer.apply_chat_template(
            messages,
            tools=list(made.schemas),
            chat_template=qwen3_training_chat_template,
            return_dict=True,
            return_assistant_tokens_mask=True,
        )
        ids, mask = list(whole["input_ids"]), list(whole["assistant_masks"])
        for place in range(len(ids)):
            if ids[place - 1] == made.stop_id:
                assert [ids[place]] == newline
                mask[place] = 0
            if not thinking and ids[place : place + len(nothing_thought)] == nothing_thought:
                mask[place : place + len(nothing_thought)] = [0] * len(nothing_thought)
        assert made.tokens(made.segments(messages)) == (ids[:-1], mask[:-1])
        assert mask[:-1] == loss_mask(ids[:-1], tokenizer, thinking)


# GRPO as TRL does it

TRAINING = ToolTraining(
    train=("grpo",),
    learning_rate=1e-3,
    max_grad_norm=1.0,
    num_generations=4,
    prompts_per_step=4,
    gradient_accumulation_steps=1,
    beta=0.0,
    repetition_penalty=1.0,
    top_p=1.0,
    save_steps=1,
    lora_r=2,
    report_to=(),
)


def trainer_of(
    folder: Path,
    tools: tuple[ToolName, ...] = ("calculator",),
    generation: Generation = LIMITS,
    model: Network = NETWORK,
    **changed: Any,
) -> Any:
    """TRL's trainer on eight sums, as `arc-refinery train-tools` makes it."""
    training = TRAINING.model_copy(update=changed)
    made = renderer(generation.enable_thinking, tools)
    asked = [gsm8k_question(gsm8k_row(1, "train", 0, place), f"sum-{place}", "") for place in range(8)]
    none: Any = None  # nothing is executed here
    tools_of = lambda question: Toolbox(tools, folder=folder, max_calls_per_turn=2)  # noqa: E731
    lesson = CallingTools(asked, made, training, generation, model.window, tools_of, tools, (none, none), "", 0)
    job = grpo.Job(
        model=model,
        training=training,
        guard=Guard(),
        sandbox=Sandbox(),
        seed=0,
        start=None,
        output=folder / "adapter",
        work=folder / "checkpoints",
        measurements=None,
        tensorboard=folder / "tensorboard",
    )
    trainer = grpo._trainer(job, lesson, training.learning_rate)
    assert isinstance(trainer, ToolTrainer)
    trainer.model.train()
    return trainer


def step(trainer: Any, first: int, n_prompts: int) -> dict[str, torch.Tensor]:
    """What TRL makes of the prompts from `first` on: its input to the loss."""
    rows = trainer.train_dataset.select(range(first, first + n_prompts))
    scored: dict[str, torch.Tensor] = trainer._generate_and_score_completions(
        [row for row in rows for _ in range(TRAINING.num_generations)]
    )
    return scored


def script(trainer: Any, rng: random.Random) -> None:
    """Let turns be drawn from those above instead of being sampled."""
    longest = trainer.generation.max_turn_tokens

    def turns(contexts: list[list[int]], *_: Any) -> tuple[list[list[int]], None]:
        return [turn(rng, trainer.renderer, longest) for _ in contexts], None

    trainer._generate_single_turn = turns
    trainer.eos_token_ids = trainer.renderer.ids(END + OTHER_END)  # as Qwen3's generation_config.json has it


def check(trainer: Any, scored: dict[str, torch.Tensor], is_truncated_masked: bool) -> None:
    """Each row of TRL's tensors against the episode that was played, and against the reading of its ids."""
    tokenizer, generation = trainer.renderer.tokenizer, trainer.generation
    ends = tokenizer.convert_ids_to_tokens(trainer.eos_token_ids)
    loss = scored["completion_mask"] * scored["tool_mask"]
    assert int(scored["num_items_in_batch"]) == int(loss.sum()) > 0
    for row, environment in enumerate(trainer.environments):
        played = environment.episode
        prompt = scored["prompt_ids"][row][scored["prompt_mask"][row] == 1].tolist()
        assert prompt == trainer.renderer.ids(trainer.renderer.prompt(environment.question.text)) == played.prompt_ids
        n_tokens = len(played.completion_ids)
        completion = scored["completion_ids"][row].tolist()
        assert completion[:n_tokens] == played.completion_ids
        assert set(completion[n_tokens:]) <= {tokenizer.pad_token_id}
        assert not loss[row, n_tokens:].any()
        read = loss_mask(
            prompt + played.completion_ids, tokenizer, generation.enable_thinking, ends, generation.max_turn_tokens
        )
        is_cut = tokenizer.decode(played.completion_ids[-1]) not in ends
        assert loss[row, :n_tokens].tolist() == [
            0 if is_truncated_masked and is_cut else carries for carries in read[len(prompt) :]
        ]


@pytest.mark.parametrize(("thinking", "is_truncated_masked"), [(True, True), (False, False)])
def test_grpo_on_written_turns(thinking: bool, is_truncated_masked: bool, tmp_path: Path):
    (tmp_path / "notes.txt").write_text(NOTES)
    generation = LIMITS.model_copy(update={"enable_thinking": thinking})
    trainer = trainer_of(tmp_path, ALL, generation, mask_truncated_completions=is_truncated_masked)
    script(trainer, random.Random(1))
    endings, faults = set(), set()
    for _ in range(6):
        scored = step(trainer, 0, 8)
        check(trainer, scored, is_truncated_masked)
        endings |= {one.episode.ending for one in trainer.environments}
        faults |= {result.fault for one in trainer.environments for result in one.episode.results}
    assert endings == {"answer", "truncated", "tokens", "calls"}
    assert faults == {*get_args(Fault), None}


def test_grpo_on_what_the_embedded_model_samples(tmp_path: Path):
    """Hot, and with short turns, so that it calls, and some turns are cut."""
    generation = LIMITS.model_copy(update={"max_turn_tokens": 36})
    trainer = trainer_of(tmp_path, generation=generation, temperature=1.7)
    torch.manual_seed(0)
    episodes: list[Play] = []
    for _ in range(3):
        check(trainer, step(trainer, 0, 8), is_truncated_masked=True)
        episodes += [one.episode for one in trainer.environments]
    assert sum(len(episode.results) for episode in episodes) > 3
    assert {episode.ending for episode in episodes} >= {"answer", "truncated"}


def test_each_episode_has_a_fresh_environment_on_its_own_question(tmp_path: Path):
    trainer = trainer_of(tmp_path)
    script(trainer, random.Random(2))
    boxes = []
    for first in (0, 4):
        step(trainer, first, 4)
        assert len({id(one) for one in trainer.environments}) == 16
        assert [one.question.question_id for one in trainer.environments] == [
            row["question_id"] for row in trainer.train_dataset.select(range(first, first + 4)) for _ in range(4)
        ]
        assert all(one.episode.toolbox is one.toolbox for one in trainer.environments)
        boxes += [one.toolbox for one in trainer.environments]
    assert len({id(box) for box in boxes}) == 32


@both
@pytest.mark.parametrize("tools", [("calculator",), ALL, ("read_file", "calculator")])
def test_trl_reads_the_prompts_that_the_evaluation_reads(tools: tuple[ToolName, ...], thinking: bool, tmp_path: Path):
    trainer = trainer_of(tmp_path, tools, LIMITS.model_copy(update={"enable_thinking": thinking}))
    script(trainer, random.Random(3))
    check(trainer, step(trainer, 0, 4), is_truncated_masked=True)


def test_turns_end_at_the_stop_token_also_where_the_model_names_another_end(tmp_path: Path):
    folder = tmp_path / "model"
    shutil.copytree(TINY_TOOLS, folder)
    (other,) = renderer(True).ids(OTHER_END)
    for name, named in (
        ("tokenizer_config.json", {"eos_token": OTHER_END}),
        ("generation_config.json", {"eos_token_id": other}),
        ("config.json", {"eos_token_id": other}),
    ):
        (folder / name).write_text(json.dumps(json.loads((folder / name).read_text()) | named))
    trainer = trainer_of(tmp_path, model=NETWORK.model_copy(update={"path": str(folder)}))
    assert sorted(trainer.eos_token_ids) == sorted(trainer.renderer.ids(END + OTHER_END))
    check(trainer, step(trainer, 0, 1), is_truncated_masked=True)
    assert {one.episode.ending for one in trainer.environments} == {"answer"}


def test_no_first_turn_makes_trl_raise(tmp_path: Path):
    """JSON that is nested deeper than Python can follow."""
    generation = Generation(max_turn_tokens=5000, max_episode_tokens=6000)
    trainer = trainer_of(tmp_path, generation=generation, model=NETWORK.model_copy(update={"window": 8000}))
    made = trainer.renderer
    deep, answer = made.ids(f"<tool_call>\n{'[' * 4000}\n</tool_call>{END}"), made.ids(f"#### 1{END}")
    turns = iter([[deep] * 4, [answer] * 4])
    trainer._generate_single_turn = lambda *_: (next(turns), None)
    check(trainer, step(trainer, 0, 1), is_truncated_masked=True)
    assert [[result.fault for result in one.episode.results] for one in trainer.environments] == [["malformed"]] * 4
