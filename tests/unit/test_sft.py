"""Supervised fine-tuning: which tokens carry loss, the same adapter after an interruption, what is written."""

import json
import os
import resource
import shutil
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from checkout import TINY, contents
from experiments import do
from factories import make_demonstration
from processes import disk_states
from safetensors.torch import load
from trl import SFTTrainer

from arc_refinery import records
from arc_refinery.config import Lora
from arc_refinery.domains.prompts import Renderer
from arc_refinery.errors import InputError
from arc_refinery.models.chat import Message, begin_answers
from arc_refinery.models.tokenizers import load_tokenizer
from arc_refinery.refining.config import PromptedModel, Sft
from arc_refinery.training import callbacks, sft
from arc_refinery.training.sft import SftRow

MODEL = PromptedModel(path=TINY, template="compact", window=1024)
LORA = Lora(lora_r=2, lora_alpha=4)
# 5 rows, 2 a step: 3 steps an epoch, the last of one row
TRAINING = Sft(learning_rate=3e-3, max_grad_norm=1.0, rows_per_step=2, epochs=2, save_steps=2)
ANSWER = "```python\nfrom common import *\n\ndef transform(grid):\n    grid = {call}(grid)\n    return grid\n```"
CALLS = ("np.flipud", "np.fliplr", "np.rot90", "np.transpose", "np.copy")

pytestmark = [pytest.mark.model, pytest.mark.training, pytest.mark.usefixtures("on_a_cpu")]


def conversation(number: int) -> list[Message]:
    """A second turn; the longer, the higher the number."""
    return [
        Message(role="user", content="\ninput 1x2\n12\noutput 1x2\n21" * (number + 1)),
        Message(role="assistant", content=ANSWER.format(call="np.sort")),
        Message(role="user", content="Executing your program gave:\npair 1 correct\nWrite a corrected program."),
    ]


def demonstration(number: int, renderer: Renderer, prefix: str = "") -> SftRow:
    begun = [Message(role="assistant", content=prefix)] if prefix else []
    text, _ = renderer.render(conversation(number) + begun)
    answer = ANSWER.format(call=CALLS[number])
    record = make_demonstration(
        demonstration_id=f"t/sft-{number:03d}", text=text, completion=answer.removeprefix(prefix)
    )
    return SftRow(record.demonstration_id, record.segments("<|end|>"))


@pytest.fixture(scope="module")
def rows(renderer: Renderer) -> list[SftRow]:
    return [demonstration(number, renderer) for number in range(len(CALLS))]


def train(rows: list[SftRow], folder: Path, training: Sft = TRAINING, **optional: Any) -> dict[str, bytes]:
    """The files that a training writes."""
    sft.train_sft(rows, MODEL, LORA, training, 0, folder / "adapter", folder / "checkpoints", **optional)
    return {path.name: path.read_bytes() for path in (folder / "adapter").iterdir()}


@pytest.fixture(scope="module")
def undisturbed(rows: list[SftRow], tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("undisturbed")
    return train(rows, folder, measurements=folder / "logs/measured.jsonl")


def test_a_training_that_diverges_ends_and_writes_no_adapter(rows: list[SftRow], tmp_path: Path):
    training = TRAINING.model_copy(update={"learning_rate": 1e6, "max_grad_norm": 1e9, "epochs": 20})
    with pytest.raises(InputError) as caught:
        train(rows, tmp_path, training)
    assert "learning_rate" in str(caught.value)
    assert not (tmp_path / "adapter").exists()


# tokens and labels


def test_a_row_has_the_tokens_of_the_whole_conversation(rows: list[SftRow]):
    tokenizer = load_tokenizer(TINY)
    for number, row in enumerate(sft.dataset(rows, tokenizer)):
        answered = [*conversation(number), Message(role="assistant", content=ANSWER.format(call=CALLS[number]))]
        whole = tokenizer.apply_chat_template(answered, return_dict=True, return_assistant_tokens_mask=True)
        assert row["input_ids"] == whole["input_ids"]
        n_answer = sum(row["completion_mask"])  # the template marks the first answer too
        assert whole["assistant_masks"][-n_answer - 1 :] == [0] + [1] * n_answer
        assert row["completion_mask"] == [0] * (len(row["input_ids"]) - n_answer) + [1] * n_answer


def batch_of(rows: list[SftRow], folder: Path) -> dict[str, Any]:
    """All rows as the network gets them."""
    training = TRAINING.model_copy(update={"rows_per_step": len(rows)})
    trainer = sft.open_trainer(rows, MODEL, LORA, training, 0, folder)
    (batch,) = trainer.get_train_dataloader()
    return dict(batch)


@pytest.mark.parametrize("prefix", ["", ANSWER.partition("\n\ndef")[0]])
def test_exactly_the_answer_and_its_end_carry_loss(prefix: str, renderer: Renderer, tmp_path: Path):
    rows = [demonstration(number, renderer, prefix) for number in range(len(CALLS))]
    tokenizer = load_tokenizer(TINY)
    batch = batch_of(rows, tmp_path)
    learned = set()
    lengths = batch["shared"].lengths
    parts = (batch[name][0].split(lengths) for name in ("input_ids", "labels", "position_ids"))
    for ids, labels, positions in zip(*parts, strict=True):
        assert positions.tolist() == list(range(len(ids)))
        index = (labels != -100).nonzero().flatten().tolist()
        assert index == list(range(index[0], len(ids)))  # one stretch, to the end token
        assert torch.equal(labels[index], ids[index])
        assert ids[-1] == tokenizer.eos_token_id
        learned.add((tokenizer.decode(ids[: index[0]]), tokenizer.decode(ids[index])))
    assert learned == {(prompt.text, answer.text + "<|end|>") for prompt, answer, _ in (row.segments for row in rows)}
    assert len(set(lengths)) > 1


def test_rows_side_by_side_train_the_adapter_that_padded_rows_train(
    rows: list[SftRow], undisturbed: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sft, "enable_layouts", lambda _: "for comparison")
    padded = train(rows, tmp_path)
    before, after = (load(files["adapter_model.safetensors"]) for files in (padded, undisturbed))
    moved = torch.cat([weights.flatten() for name, weights in after.items() if "lora_B" in name])  # zeros at first
    apart = torch.cat([(before[name] - weights).flatten() for name, weights in after.items()])
    assert 0 < apart.norm() < 1e-3 * moved.norm()


def test_tokens_are_counted_without_a_padded_mask(rows: list[SftRow], tmp_path: Path):
    batch = batch_of(rows, tmp_path)
    assert int(batch["attention_mask"].sum()) == batch["input_ids"].numel() == sum(batch["shared"].lengths)


def test_with_a_prefix_the_prompt_is_what_grpo_asks(renderer: Renderer):
    prefix = ANSWER.partition("\n\ndef")[0]
    tokenizer = load_tokenizer(TINY)
    begin_answers(tokenizer, prefix)
    prompt_text = tokenizer.apply_chat_template(conversation(0), tokenize=False, add_generation_prompt=True)
    prompt, answer, end = demonstration(0, renderer, prefix).segments
    assert prompt.text == prompt_text
    assert answer.text.startswith("\n\ndef transform")
    assert end.text == tokenizer.eos_token


# a training


def test_it_learns_and_logs_each_step_without_times(undisturbed: dict[str, bytes]):
    steps = [json.loads(line) for line in undisturbed["training.jsonl"].splitlines()]
    assert [step["step"] for step in steps] == [1, 2, 3, 4, 5, 6]
    assert [step["epoch"] for step in steps] == pytest.approx([1 / 3, 2 / 3, 1, 4 / 3, 5 / 3, 2])
    assert all(set(step) == set(sft.LOGGED_METRICS) for step in steps)
    assert steps[0]["learning_rate"] == 0.0  # a warm-up of one step
    assert {step["learning_rate"] for step in steps[1:]} == {3e-3}
    first, second = (sum(step["loss"] for step in steps[half : half + 3]) for half in (0, 3))
    assert second < 0.8 * first


def interrupted(rows: list[SftRow], folder: Path, step: int) -> None:
    """A training that is killed when it has made that many steps."""

    class Killed(BaseException):
        pass

    def die(_: Any, args: Any, state: Any, *__: Any, **___: Any) -> None:
        if state.global_step == step:
            raise Killed

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        patch.setattr(callbacks.OneLineProgress, "on_log", die)
        train(rows, folder)


def test_interrupted_it_goes_on_and_ends_with_the_same_bytes(
    rows: list[SftRow], undisturbed: dict[str, bytes], tmp_path: Path
):
    interrupted(rows, tmp_path, 5)  # after the checkpoint of step 4, which is in the middle of an epoch
    assert not (tmp_path / "adapter").exists()
    assert {path.name for path in (tmp_path / "checkpoints").glob("c*")} == {"checkpoint-2", "checkpoint-4"}
    torn = shutil.copytree(tmp_path / "checkpoints/checkpoint-4", tmp_path / "checkpoints/checkpoint-5")
    (torn / "trainer_state.json").unlink()  # a kill while it was written
    torch.rand(7)  # another state of the generator
    measured = tmp_path / "measured.jsonl"
    assert train(rows[::-1], tmp_path, measurements=measured) == undisturbed
    assert [json.loads(line)["step"] for line in measured.read_text().splitlines()] == [5, 6]
    assert not (tmp_path / "checkpoints").exists()


@pytest.mark.slow
def test_killed_at_any_write_it_ends_with_the_same_bytes(rows: list[SftRow], tmp_path: Path):
    training = TRAINING.model_copy(update={"max_steps": 2})  # ends within an epoch
    (tmp_path / "undisturbed").mkdir()
    states = disk_states(tmp_path / "undisturbed", tmp_path, lambda: train(rows, tmp_path / "undisturbed", training))
    undisturbed = contents(tmp_path / "undisturbed/adapter")
    assert [state.name for state in states if train(rows, state, training) != undisturbed] == []


@pytest.mark.parametrize(
    ("moment", "saved"),
    [("_prepare_inputs", 2), ("log", 3)],
    ids=["in the middle of the third step", "while the third step ends"],
)
def test_ended_by_sigterm_it_has_saved_its_last_whole_step(
    rows: list[SftRow], undisturbed: dict[str, bytes], tmp_path: Path, moment: str, saved: int
):
    class Ended(BaseException):
        pass

    def end(*_: Any) -> None:
        raise Ended

    calls: list[int] = []
    original = getattr(SFTTrainer, moment)

    def ending(trainer: Any, *arguments: Any, **named: Any) -> Any:
        calls.append(trainer.state.global_step)
        if len(calls) == 3:
            torch.rand(7)  # drawn since the last whole step
            os.kill(os.getpid(), signal.SIGTERM)
        return original(trainer, *arguments, **named)

    every = TRAINING.model_copy(update={"save_steps": 100})
    before = signal.signal(signal.SIGTERM, end)
    try:
        with pytest.MonkeyPatch.context() as patch, pytest.raises(Ended):
            patch.setattr(SFTTrainer, moment, ending)
            train(rows, tmp_path, every)
        assert signal.getsignal(signal.SIGTERM) is end
    finally:
        signal.signal(signal.SIGTERM, before)
    assert [path.name for path in (tmp_path / "checkpoints").glob("c*")] == [f"checkpoint-{saved}"]
    assert train(rows, tmp_path, every) == undisturbed


@pytest.mark.parametrize("name", ["adapter_model.safetensors", "optimizer.pt", "rng_state.pth"])
def test_a_damaged_checkpoint_is_skipped(
    rows: list[SftRow], undisturbed: dict[str, bytes], tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
):
    interrupted(rows, tmp_path, 5)
    caplog.set_level("INFO")
    damaged = tmp_path / "checkpoints/checkpoint-4" / name
    os.truncate(damaged, damaged.stat().st_size - 100)
    assert train(rows, tmp_path) == undisturbed
    assert f"{damaged}: is damaged" in caplog.text
    assert "checkpoint-2: training resumes" in caplog.text


def test_a_checkpoint_that_cannot_be_written_is_named(rows: list[SftRow], tmp_path: Path):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(InputError, match=r"checkpoints/checkpoint-2: cannot be written: .* limit") as caught:
            train(rows, tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "finished work is kept" in str(caught.value)


def test_curves_that_cannot_be_written_are_named(rows: list[SftRow], tmp_path: Path):
    (tmp_path / "logs").write_text("a file where a folder is needed")
    with pytest.raises(InputError, match=r"logs/curves: cannot be written: a file is where a folder is needed"):
        train(rows, tmp_path, tensorboard=tmp_path / "logs" / "curves")


def test_checkpoints_of_other_rows_are_not_taken_up(rows: list[SftRow], undisturbed: dict[str, bytes], tmp_path: Path):
    prompt, answer, end = rows[0].segments
    other = [replace(rows[0], segments=(prompt, replace(answer, text="other"), end)), *rows[1:]]
    interrupted(other, tmp_path, 3)
    assert (tmp_path / "checkpoints/checkpoint-2").exists()
    assert train(rows, tmp_path) == undisturbed


def test_measurements_have_a_line_a_step(rows: list[SftRow], tmp_path: Path):
    measured = tmp_path / "logs/measured.jsonl"
    measured.parent.mkdir()
    measured.write_text('{"step": 9}\n')  # another training's log: one from the beginning does not add to it
    train(rows, tmp_path, TRAINING.model_copy(update={"max_steps": 2}), measurements=measured)
    lines = [json.loads(line) for line in measured.read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 2]
    assert all(line["seconds/step"] > 0 and line["trainer_mb"] > 50 for line in lines)


@pytest.mark.parametrize(
    ("kind", "counts"),
    [
        (records.Demonstration, {"n_tasks": 3, "n_tasks_without_target": 2}),
        (records.Conversation, {"n_questions": 4, "n_without": 4}),
    ],
)
def test_without_demonstrations_the_numbers_of_all_files_are_the_message(
    kind: type[Any], counts: dict[str, int], tmp_path: Path
):
    paths = (tmp_path / "a.parquet", tmp_path / "b.parquet")
    for path in paths:
        records.write(path, kind, [], 0, {}, lambda: counts)
    settings = {
        "model": {"path": TINY, "window": 1},
        "sft": TRAINING.model_dump(exclude={"demonstrations"}),
        "lora": {"lora_r": 1},
    }
    written = {name: tmp_path / name for name in ("output", "checkpoints", "measurements", "tensorboard")}
    with pytest.raises(InputError) as caught:
        do("sft", settings, data=paths, **written)
    for fact in (*map(str, paths), *(f"{name} {2 * n}" for name, n in counts.items())):
        assert fact in str(caught.value)
