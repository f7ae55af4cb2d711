"""Which tokens carry loss, token by token, against a reading of the ids alone: in SFT, and in TRL's GRPO."""

import json
import random
import shutil
from itertools import count
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from checkout import TINY_TOOLS
from factories import gsm8k_question
from written_turns import ALL, END, LIMITS, NOTES, OTHER_END, loss_mask, make_renderer, questions, turn

from arc_refinery.config import Guard, Lora, ModelConfig, Sandbox
from arc_refinery.domains.gsm8k.generator import gsm8k_row
from arc_refinery.errors import InputError
from arc_refinery.records.tool_use import Question
from arc_refinery.sandbox import Executor
from arc_refinery.tool_use.calls.tool import Fault, ToolDown
from arc_refinery.tool_use.config import Generation, ToolGrpo
from arc_refinery.tool_use.config.experiment import ToolName, ToolSft
from arc_refinery.tool_use.tools.built_in_tools import Calculator
from arc_refinery.tool_use.tools.toolbox import Toolbox
from arc_refinery.tool_use.training.demonstrations import conversation
from arc_refinery.tool_use.training.environment import ToolEnvironment, ToolTrainer
from arc_refinery.training import grpo, sft
from arc_refinery.training.job import TrainingJob

pytestmark = [pytest.mark.model, pytest.mark.training, pytest.mark.usefixtures("on_a_cpu")]

NETWORK = ModelConfig(path=TINY_TOOLS, window=1024)
both = pytest.mark.parametrize("thinking", [True, False])


@both
def test_sft_gets_labels_on_what_the_model_is_to_write(thinking: bool, executor: Executor, tmp_path: Path):
    renderer, toolbox = make_renderer(thinking), Toolbox(executor=executor)
    sources = [(question, share) for share in (0.0, 1.0) for question in questions(16)]
    demos = [conversation(question, toolbox, renderer, share, 0) for question, share in sources]
    rows = [sft.SftRow(f"{index}", demo.segments) for index, demo in enumerate(demos) if demo is not None]
    assert len(rows) > 30
    training = ToolSft(rows_per_step=len(rows), learning_rate=1e-3, max_grad_norm=1.0, epochs=1, save_steps=1)
    trainer = sft.open_trainer(rows, NETWORK, Lora(lora_r=2), training, 0, tmp_path)
    (batch,) = trainer.get_train_dataloader()
    learned = []
    for ids, labels in zip(
        *(batch[name][0].split(batch["shared"].lengths) for name in ("input_ids", "labels")), strict=True
    ):
        mask = (labels != -100).int()
        assert mask.tolist() == loss_mask(ids.tolist(), renderer.tokenizer, thinking)
        assert torch.equal(labels[mask == 1], ids[mask == 1])
        learned.append(renderer.tokenizer.decode(ids))
    assert sorted(learned) == sorted("".join(segment.text for segment in row.segments) for row in rows)
    assert any("<tool_response>" in text for text in learned)


# GRPO as TRL does it

TRAINING = ToolGrpo(
    learning_rate=1e-3,
    max_grad_norm=1.0,
    num_generations=4,
    prompts_per_step=4,
    gradient_accumulation_steps=1,
    beta=0.0,
    repetition_penalty=1.0,
    top_p=1.0,
    save_steps=1,
    report_to=(),
)


def trainer_of(
    folder: Path,
    tools: tuple[ToolName, ...] = ("calculator",),
    generation: Generation = LIMITS,
    model: ModelConfig = NETWORK,
    tools_of_first: tuple[ToolName, ...] = (),
    **changed: Any,
) -> Any:
    """TRL's trainer on eight sums, as the stage `train` of tool use makes it.

    The first sum may have other tools than the others.
    """
    training = TRAINING.model_copy(update=changed)
    renderer = make_renderer(generation.enable_thinking, tools)
    sums = [gsm8k_question(gsm8k_row(1, "train", 0, index), f"sum-{index}") for index in range(8)]
    none: Any = None  # nothing is executed here

    def tools_of(question: Question) -> Toolbox:
        selected = tools_of_first if question.question_id == "sum-0" and tools_of_first else tools
        return Toolbox(selected, folder=folder, max_calls_per_turn=2)

    environment = ToolEnvironment(
        questions=sums,
        renderer=renderer,
        training=training,
        generation=generation,
        open_toolbox=tools_of,
        names=tools,
        executors=(none, none),
        files_hash="",
        seed=0,
    )
    job = TrainingJob(
        model=model,
        lora=Lora(lora_r=2),
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
    trainer = grpo.open_trainer(job, environment, {})
    assert isinstance(trainer, ToolTrainer)
    trainer.model.train()
    return trainer


def step(trainer: Any, first: int, n_prompts: int) -> dict[str, torch.Tensor]:
    """TRL's input to the loss, made of the prompts from `first` on."""
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
        episode = environment.episode
        prompt = scored["prompt_ids"][row][scored["prompt_mask"][row] == 1].tolist()
        assert prompt == trainer.renderer.ids(trainer.renderer.prompt(environment.question.text)) == episode.prompt_ids
        n_tokens = len(episode.completion_ids)
        completion = scored["completion_ids"][row].tolist()
        assert completion[:n_tokens] == episode.completion_ids
        assert set(completion[n_tokens:]) <= {tokenizer.pad_token_id}
        assert not loss[row, n_tokens:].any()
        read = loss_mask(
            prompt + episode.completion_ids, tokenizer, generation.enable_thinking, ends, generation.max_turn_tokens
        )
        is_cut = tokenizer.decode(episode.completion_ids[-1]) not in ends
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
    for _ in range(3):
        scored = step(trainer, 0, 8)
        check(trainer, scored, is_truncated_masked)
        endings |= {environment.episode.ending for environment in trainer.environments}
        faults |= {result.fault for environment in trainer.environments for result in environment.episode.results}
    assert endings == {"answer", "truncated", "tokens", "calls"}
    assert faults == {*get_args(Fault), None}


def test_an_episode_whose_tool_could_not_work_carries_no_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    begin, calls = Calculator.begin, count()

    def away_at_every_third_call(self: Calculator, arguments: dict[str, Any]) -> str:
        if next(calls) % 3 == 2:
            raise ToolDown("away")
        return begin(self, arguments)

    monkeypatch.setattr(Calculator, "begin", away_at_every_third_call)
    trainer = trainer_of(tmp_path, scale_rewards="none", max_failed=1.0)
    script(trainer, random.Random(1))
    scored = step(trainer, 0, 8)
    episodes = [environment.episode for environment in trainer.environments]
    failed = [episode.ending == "failed" for episode in episodes]
    assert 2 < sum(failed) < 30
    assert all("away" not in message.content for episode in episodes for message in episode.messages)
    loss = scored["completion_mask"] * scored["tool_mask"]
    assert not loss[torch.tensor(failed)].any()
    assert int(scored["num_items_in_batch"]) == int(loss.sum()) > 0
    for start in range(0, 32, 4):
        group = range(start, start + 4)
        rewards = [trainer._scored.completions[row].reward for row in group if not failed[row]]
        for row in group:
            own = 0.0 if failed[row] else trainer._scored.completions[row].reward - sum(rewards) / len(rewards)
            assert float(scored["advantages"][row]) == pytest.approx(own, abs=1e-6)
    share = trainer._metrics["train"]["share/failed"]
    assert share == [sum(failed) / 32]
    trainer.model.eval()
    with pytest.raises(InputError, match=r"held-out question sum-.: away"):
        step(trainer, 0, 8)


@pytest.mark.parametrize("shares", [True, False])
def test_episodes_on_a_question_meet_in_one_pass_if_they_share_it(shares: bool, tmp_path: Path) -> None:
    trainer = trainer_of(tmp_path, gradient_accumulation_steps=2)
    assert trainer._shares_prompts
    trainer._shares_prompts = shares
    script(trainer, random.Random(0))
    rows = [row for row in trainer.train_dataset.select(range(4)) for _ in range(4)]
    first = trainer._prepare_inputs(rows)
    passes = trainer._buffered_inputs
    assert first is passes[0]
    questions = [{tuple(prompt) for prompt in arguments["prompt_ids"].tolist()} for arguments in passes]
    assert [len(arguments["prompt_ids"]) for arguments in passes] == [8, 8]
    assert ([len(some) for some in questions] == [2, 2]) == shares  # TRL shuffles them
    trainer._step = 1
    assert trainer._prepare_inputs(rows) is passes[1]


def test_grpo_on_what_the_embedded_model_samples(tmp_path: Path):
    """Hot, and with short turns, so that it calls, and some turns are cut."""
    generation = LIMITS.model_copy(update={"max_turn_tokens": 36})
    trainer = trainer_of(tmp_path, generation=generation, temperature=1.7)
    torch.manual_seed(1)
    check(trainer, step(trainer, 0, 4), is_truncated_masked=True)
    episodes = [environment.episode for environment in trainer.environments]
    assert sum(len(episode.results) for episode in episodes) > 3
    assert {episode.ending for episode in episodes} >= {"answer", "truncated"}


def test_each_episode_has_a_fresh_environment_on_its_own_question(tmp_path: Path):
    trainer = trainer_of(tmp_path)
    script(trainer, random.Random(2))
    boxes = []
    for first in (0, 4):
        step(trainer, first, 4)
        assert len({id(environment) for environment in trainer.environments}) == 16
        assert [environment.question.question_id for environment in trainer.environments] == [
            row["question_id"] for row in trainer.train_dataset.select(range(first, first + 4)) for _ in range(4)
        ]
        assert all(environment.episode.toolbox is environment.toolbox for environment in trainer.environments)
        boxes += [environment.toolbox for environment in trainer.environments]
    assert len({id(box) for box in boxes}) == 32


@pytest.mark.parametrize(
    ("tools", "thinking"), [(("calculator",), False), (ALL, True), (("read_file", "calculator"), False)]
)
def test_trl_reads_the_prompts_that_the_evaluation_reads(tools: tuple[ToolName, ...], thinking: bool, tmp_path: Path):
    trainer = trainer_of(tmp_path, tools, LIMITS.model_copy(update={"enable_thinking": thinking}))
    script(trainer, random.Random(3))
    check(trainer, step(trainer, 0, 4), is_truncated_masked=True)


def test_questions_of_one_batch_may_have_different_tools(tmp_path: Path):
    trainer = trainer_of(tmp_path, ("calculator",), tools_of_first=("read_file", "calculator"))
    script(trainer, random.Random(4))
    step(trainer, 0, 8)
    for environment in trainer.environments:
        has_first = environment.question.question_id == "sum-0"
        names = ["calculator", "read_file"] if has_first else ["calculator"]
        assert [signature.name for signature in environment.toolbox.signatures] == names
        prompt = trainer.renderer.offering(environment.toolbox.schemas).prompt(environment.question.text)
        assert ("read_file" in prompt) == has_first
        assert environment.episode.prompt_ids == trainer.renderer.ids(prompt)
    assert sum(environment.question.question_id == "sum-0" for environment in trainer.environments) == 4


def test_turns_end_at_the_stop_token_also_where_the_model_names_another_end(tmp_path: Path):
    folder = tmp_path / "model"
    shutil.copytree(TINY_TOOLS, folder)
    (other,) = make_renderer(True).ids(OTHER_END)
    for name, named in (
        ("tokenizer_config.json", {"eos_token": OTHER_END}),
        ("generation_config.json", {"eos_token_id": other}),
        ("config.json", {"eos_token_id": other}),
    ):
        (folder / name).write_text(json.dumps(json.loads((folder / name).read_text()) | named))
    trainer = trainer_of(tmp_path, model=NETWORK.model_copy(update={"path": str(folder)}))
    assert sorted(trainer.eos_token_ids) == sorted(trainer.renderer.ids(END + OTHER_END))
    check(trainer, step(trainer, 0, 1), is_truncated_masked=True)
    assert {environment.episode.ending for environment in trainer.environments} == {"answer"}


def test_no_first_turn_makes_trl_raise(tmp_path: Path):
    """JSON that is nested deeper than Python can follow."""
    generation = Generation(max_turn_tokens=5000, max_episode_tokens=6000)
    trainer = trainer_of(tmp_path, generation=generation, model=NETWORK.model_copy(update={"window": 8000}))
    renderer = trainer.renderer
    deep, answer = renderer.ids(f"<tool_call>\n{'[' * 4000}\n</tool_call>{END}"), renderer.ids(f"#### 1{END}")
    turns = iter([[deep] * 4, [answer] * 4])
    trainer._generate_single_turn = lambda *_: (next(turns), None)
    check(trainer, step(trainer, 0, 1), is_truncated_masked=True)
    assert [[result.fault for result in environment.episode.results] for environment in trainer.environments] == [
        ["malformed"]
    ] * 4
