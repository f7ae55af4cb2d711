"""Completions that a training has sampled: kept in files of its checkpoints, and shown."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from factories import make_prompt

from arc_refinery import records
from arc_refinery.domains.arc.records import Prompt
from arc_refinery.errors import InputError
from arc_refinery.reporting.training import samples_blocks, show_samples
from arc_refinery.training import samples
from arc_refinery.training.log import Decision
from arc_refinery.training.samples import Samples, Span, TermValue, TrainingSample, spans


def completion(text: str, reward: float, **changes: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "name": "t/training-000",
        "spans": (Span(text, 3, True),),
        "is_truncated": False,
        "status": "ok",
        "solved": reward == 1,
        "reward": reward,
        "terms": (TermValue("solved", reward),),
        "advantages": (reward - 0.5,),
        "sampler_logprob": None,
        "trainer_logprob": -0.25,
    }
    return fields | changes


def steps(path: Path) -> list[str]:
    return [sample.sample_id for sample in records.read(path, TrainingSample)]


def train(work: Path, numbers: range, saved: set[int]) -> Samples:
    kept = Samples(work, 0)
    for step in numbers:
        kept.add(step, [completion(f"{step}", 0.0)])
        if step in saved:
            kept.save(step)
    return kept


def test_no_completion_is_lost_or_doubled_by_kills(tmp_path: Path):
    train(tmp_path, range(1, 6), {2, 4})  # killed in step 6
    resumed = Samples(tmp_path, 0)
    resumed.resume(2)  # the checkpoint of step 4 is damaged
    for step in (3, 4, 5):
        resumed.add(step, [completion("again", 0.0)])
    resumed.save(5)
    resumed.write(tmp_path / "samples.parquet")
    assert steps(tmp_path / "samples.parquet") == [f"{step}/0000" for step in (1, 2, 3, 4, 5)]


def test_files_do_not_depend_on_when_checkpoints_were_saved(tmp_path: Path):
    contents = []
    for name, saved in (("often", {1, 2, 3, 4}), ("once", {4})):
        (tmp_path / name).mkdir()
        train(tmp_path / name, range(1, 5), saved).write(tmp_path / f"{name}.parquet")
        contents.append((tmp_path / f"{name}.parquet").read_bytes())
    assert contents[0] == contents[1]


def test_few_completions_wait_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(samples, "MOST_WAITING", 3)
    kept = train(tmp_path, range(1, 7), set())
    assert [path.name for path in samples.pieces(tmp_path).values()] == ["samples-4.parquet"]
    kept.save(6)
    kept.write(tmp_path / "samples.parquet")
    assert len(steps(tmp_path / "samples.parquet")) == 6


def test_turns_of_the_model_are_told_from_what_is_between() -> None:
    class Letters:
        def decode(self, ids: list[int]) -> str:
            return "".join(map(chr, ids))

    ids, mask = [97, 98, 99, 100], [True, False, False, True]
    assert spans(Letters(), ids, mask) == (Span("a", 1, True), Span("bc", 2, False), Span("d", 1, True))


@pytest.fixture
def adapter(tmp_path: Path) -> Path:
    work = tmp_path / "checkpoints"
    work.mkdir()
    kept = Samples(work, 0)
    kept.resume(0)
    kept.add(1, [completion("one", 0.0), completion("bad ```", 1.0, is_truncated=True, status="")])
    kept.save(1)
    turns = (Span("mine", 2, True), Span("<|user|>wrong", 4, False), Span("better", 1, True))
    kept.add(2, [completion("new", 0.5), completion("", 0.25, spans=turns), completion("x", 0.0)])
    kept.save(2)
    kept.write(tmp_path / "samples.parquet")
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (
            (None, 1, False),
            "step 2, 3 completions, 3 distinct, mean reward 0.25; the 1 with the highest reward\n\n"
            "--- t/training-000: reward 0.5 (solved 0.5), advantage 0, ok, 3 tokens ---\nnew",
        ),
        (
            (1, 2, True),
            "step 1, 2 completions, 2 distinct, mean reward 0.5; the 2 with the lowest reward\n\n"
            "--- t/training-000: reward 0 (solved 0), advantage -0.5, ok, 3 tokens ---\none\n\n"
            "--- t/training-000: reward 1 (solved 1), advantage 0.5, truncated, 3 tokens ---\nbad ```",
        ),
    ],
)
def test_completions_of_a_step_are_shown(adapter: Path, arguments: tuple[int | None, int, bool], shown: str):
    assert show_samples(adapter, *arguments) == f"{adapter}: {shown}"


def test_equal_completions_are_shown_once_below_their_prompt(tmp_path: Path):
    adapter = tmp_path / "adapters/trained"
    sampled = [
        completion("x", 0.0),
        *(completion(text, 1.0) for text in "aab"),
        completion("a", 1.0, name="t/training-001"),
    ]
    written = [TrainingSample(f"1/{number}", 1, **fields) for number, fields in enumerate(sampled)]
    records.write(adapter / "samples.parquet", TrainingSample, written, 0, {})

    def titles(number: int, worst: bool = False) -> list[str]:
        text = show_samples(adapter, None, number, worst)
        return [line.strip("-= ") for line in text.splitlines() if line.startswith(("---", "==="))]

    facts = "reward 1 (solved 1), advantage 0.5, ok, 3 tokens"
    a, b, other = f"t/training-000: {facts}, 2 times", f"t/training-000: {facts}", f"t/training-001: {facts}"
    assert titles(2) == [a, other]  # of two prompts
    assert titles(3) == [a, b, other]
    assert titles(1, worst=True) == ["t/training-000: reward 0 (solved 0), advantage -0.5, ok, 3 tokens"]
    prompts = [make_prompt(prompt_id=f"t/training-00{number}", text=f"text {number}\n") for number in (0, 1, 2)]
    records.write(tmp_path / "part1/training/prompts.parquet", Prompt, prompts, 0, {})
    assert titles(3) == ["t/training-000", a, b, "t/training-001", other]
    assert "=== t/training-001 ===\ntext 1\n\n---" in show_samples(adapter, None, 3, False)


@pytest.mark.parametrize(
    ("folder", "step", "message"),
    [
        (lambda path: path, 3, r"--step is 3, but .* has completions for 2 steps: 1 to 2"),
        (lambda path: path / "checkpoints", None, r"samples.parquet: no such file. Give the folder of an adapter"),
    ],
)
def test_what_is_not_there_cannot_be_shown(
    adapter: Path, folder: Callable[[Path], Path], step: int | None, message: str
):
    with pytest.raises(InputError, match=message):
        show_samples(folder(adapter), step, 1, False)


def test_a_report_shows_the_last_step_and_what_was_written_around_a_collapse(adapter: Path):
    (text,) = samples_blocks(adapter, [Decision(1, "truncated", 1.0, 0.5, "stop")])
    best, worst, collapsed = (text.index(words) for words in ("\nnew\n", "\nx\n", "\nbad ```\n"))
    assert best < worst < text.index("At the collapse, in step 1:") < collapsed
    assert "````text\nbad ```\n````" in text
    assert samples_blocks(adapter / "checkpoints", []) == []
