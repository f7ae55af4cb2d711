"""Playing held-out questions with the embedded model: shards and interruptions change no episode."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from checkout import TINY_TOOLS
from factories import correct_answer, make_question

from arc_refinery import records
from arc_refinery.answers import final_number
from arc_refinery.config import ModelConfig, Sandbox
from arc_refinery.errors import InputError
from arc_refinery.models.tokenizers import load_tokenizer
from arc_refinery.records.tool_use import Episode, Question
from arc_refinery.sampling.shard import progress_path
from arc_refinery.tool_use.calls.tool import ToolDown
from arc_refinery.tool_use.calls.turns import parse_turn
from arc_refinery.tool_use.config import Generation, Questions
from arc_refinery.tool_use.episodes.rendering import ToolRenderer
from arc_refinery.tool_use.episodes.rollout import EpisodeSettings, run_shard
from arc_refinery.tool_use.questions.sources import questions_of
from arc_refinery.tool_use.tools.built_in_tools import Calculator
from arc_refinery.tool_use.tools.toolbox import Toolbox

pytestmark = [pytest.mark.model, pytest.mark.usefixtures("on_a_cpu")]

SETS = Questions.model_validate(
    {"name": "sums", "domain": "gsm8k", "source": "generator", "levels": [1, 2], "n_tasks": 7}
)
QUESTIONS = list(questions_of(SETS, "heldout"))  # four batches, the last one of a single question


@pytest.fixture(scope="module")
def setup() -> Iterator[EpisodeSettings[ToolRenderer]]:
    sandbox = Sandbox()
    with sandbox.executor(1) as candidates, sandbox.executor(1) as graders:
        toolbox = Toolbox(("calculator",), candidates)
        yield EpisodeSettings(
            model=ModelConfig(path=TINY_TOOLS, window=512),
            adapter=None,
            generation=Generation(max_turn_tokens=48, max_episode_tokens=160),
            renderer=ToolRenderer(load_tokenizer(TINY_TOOLS), toolbox.schemas, True, "<|im_end|>"),
            open_toolbox=lambda question: toolbox,
            executors=(candidates, graders),
            sandbox=sandbox,
            files_hash="",
            n_predictions=2,
            questions_per_batch=2,
            seed=1,  # with it, an episode calls the calculator and continues
        )


@pytest.fixture(scope="module")
def undisturbed(setup: EpisodeSettings[ToolRenderer], tmp_path_factory: pytest.TempPathFactory) -> list[Episode]:
    return list(run_shard(QUESTIONS, setup, 0, 1, tmp_path_factory.mktemp("one") / "000.parquet"))


@pytest.fixture(scope="module")
def progress_of_two(setup: EpisodeSettings[ToolRenderer], tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The file that is there when the first two questions have been played."""
    output = tmp_path_factory.mktemp("two") / "000.parquet"
    list(run_shard(QUESTIONS[:2], setup, 0, 1, output))
    return progress_path(output).read_bytes()


@pytest.fixture
def output(progress_of_two: bytes, tmp_path: Path) -> Path:
    """The place of a shard whose first two questions have been played."""
    path = tmp_path / "000.parquet"
    progress_path(path).parent.mkdir()
    progress_path(path).write_bytes(progress_of_two)
    return path


def fails_at(question: Question) -> Callable[[Question], Toolbox]:
    """Return a function that opens toolboxes until it comes to a question."""

    def toolbox(opened_for: Question) -> Toolbox:
        if opened_for == question:
            raise KeyboardInterrupt
        return Toolbox(("calculator",))

    return toolbox


def test_each_question_is_played_so_many_times_and_graded(undisturbed: list[Episode]):
    expected = [f"{question.question_id}/{number:03d}" for question in QUESTIONS for number in range(2)]
    assert [episode.episode_id for episode in undisturbed] == expected
    references = {question.question_id: correct_answer(question) for question in QUESTIONS}
    tokenizer = load_tokenizer(TINY_TOOLS)
    for episode in undisturbed:
        assert len(episode.completion_ids) == len(episode.mask) <= 160
        sampled = [token for token, mine in zip(episode.completion_ids, episode.mask, strict=True) if mine]
        assert episode.n_tokens == len(sampled)
        written = "".join(said.content for said in episode.messages if said.role == "assistant")
        assert tokenizer.decode(sampled, skip_special_tokens=True) == written
        answer = parse_turn(episode.messages[-1].content).answer if episode.ending == "answer" else None
        assert episode.reward == float(str(final_number(answer or "")) == references[episode.question_id])
    assert len({episode.messages for episode in undisturbed}) > 7  # questions and repetitions are played apart
    assert any(len(episode.messages) > 1 for episode in undisturbed), (
        "or shards and interruptions are tested for little"
    )


def test_each_question_draws_from_its_own_stream(setup: EpisodeSettings[ToolRenderer], tmp_path: Path):
    twins = [replace(QUESTIONS[0], question_id=name) for name in ("a", "b", "c", "d")]
    episodes = list(run_shard(twins, setup, 0, 1, tmp_path / "000.parquet"))
    batches = [[episode.messages for episode in episodes[start : start + 4]] for start in (0, 4)]
    assert batches[0] != batches[1]


@pytest.mark.parametrize("n_shards", [3, 5])  # four batches: two in one shard; none in one shard
def test_shards_give_the_same_episodes(
    setup: EpisodeSettings[ToolRenderer], undisturbed: list[Episode], tmp_path: Path, n_shards: int
):
    episodes = [
        episode
        for shard in range(n_shards)
        for episode in run_shard(QUESTIONS, setup, shard, n_shards, tmp_path / f"{shard:03d}.parquet")
    ]
    assert sorted(episodes, key=lambda episode: episode.episode_id) == undisturbed


def test_an_interrupted_job_goes_on_and_ends_with_the_same_bytes(
    setup: EpisodeSettings[ToolRenderer], undisturbed: list[Episode], tmp_path: Path
):
    output = tmp_path / "000.parquet"
    records.write(tmp_path / "undisturbed.parquet", Episode, undisturbed, 0, {})
    with pytest.raises(KeyboardInterrupt):
        list(run_shard(QUESTIONS, replace(setup, open_toolbox=fails_at(QUESTIONS[5])), 0, 1, output))
    progress = progress_path(output).read_text()
    assert progress.count("\n") == 1 + 2  # what they belong to, and two whole batches
    progress_path(output).write_text(f'{progress}{{"episodes": [{{')  # and a line that was not finished

    again = replace(setup, open_toolbox=fails_at(QUESTIONS[0]))  # which is not played again
    records.write(output, Episode, run_shard(QUESTIONS, again, 0, 1, output), 0, {})
    assert output.read_bytes() == (tmp_path / "undisturbed.parquet").read_bytes()


def test_what_is_done_is_not_played_again(
    setup: EpisodeSettings[ToolRenderer], undisturbed: list[Episode], output: Path
):
    refuses = replace(setup, open_toolbox=fails_at(QUESTIONS[0]))
    assert list(run_shard(QUESTIONS[:2], refuses, 0, 1, output)) == undisturbed[:4]


def test_a_tool_that_cannot_work_ends_the_job_and_what_is_done_stays(
    setup: EpisodeSettings[ToolRenderer], undisturbed: list[Episode], output: Path, monkeypatch: pytest.MonkeyPatch
):
    def begin(self: Calculator, arguments: object) -> str:
        raise ToolDown("it is away")

    caller = next(episode for episode in undisturbed[4:] if episode.calls)
    with monkeypatch.context() as patched:
        patched.setattr(Calculator, "begin", begin)
        with pytest.raises(InputError, match=f"question {caller.question_id}: it is away"):
            list(run_shard(QUESTIONS, setup, 0, 1, output))
    assert list(run_shard(QUESTIONS, setup, 0, 1, output)) == undisturbed


@pytest.mark.parametrize(
    "other",
    [
        lambda setup: replace(setup, seed=2),
        lambda setup: replace(setup, generation=setup.generation.model_copy(update={"max_calls": 1})),
        lambda setup: replace(setup, sandbox=Sandbox(cpu_seconds=2.0)),
        lambda setup: replace(setup, files_hash="other"),
        lambda setup: replace(setup, questions_per_batch=1),
        lambda setup: replace(setup, n_predictions=1),
        lambda setup: replace(setup, renderer=replace(setup.renderer, schemas=())),
    ],
    ids=["seed", "limit on calls", "limit of the sandbox", "files", "batches", "repetitions", "tools"],
)
def test_progress_of_other_settings_is_forgotten(
    setup: EpisodeSettings[ToolRenderer],
    output: Path,
    other: Callable[[EpisodeSettings[ToolRenderer]], EpisodeSettings[ToolRenderer]],
):
    changed = replace(other(setup), open_toolbox=fails_at(QUESTIONS[0]))
    with pytest.raises(KeyboardInterrupt):
        list(run_shard(QUESTIONS[:2], changed, 0, 1, output))
    assert progress_path(output).read_text().count("\n") == 1


def test_progress_on_other_questions_is_forgotten(setup: EpisodeSettings[ToolRenderer], output: Path):
    other = make_question(QUESTIONS[0].question_id, QUESTIONS[0].text, "0")
    with pytest.raises(KeyboardInterrupt):
        list(run_shard([other, QUESTIONS[1]], replace(setup, open_toolbox=fails_at(other)), 0, 1, output))


def test_a_prompt_that_leaves_no_room_for_an_episode_is_named(setup: EpisodeSettings[ToolRenderer], tmp_path: Path):
    prompts = {question.question_id: setup.renderer.ids(setup.renderer.prompt(question.text)) for question in QUESTIONS}
    longest = max(prompts, key=lambda name: len(prompts[name]))
    n_tokens = len(prompts[longest])
    fits, short = (setup.model.model_copy(update={"window": 160 + n_tokens - less}) for less in (0, 1))
    with pytest.raises(InputError) as caught:
        next(run_shard(QUESTIONS, replace(setup, model=short), 0, 1, tmp_path / "000.parquet"))
    n_long = sum(len(ids) == n_tokens for ids in prompts.values())
    for fact in (longest, f"{n_long} of {len(QUESTIONS)} prompts", f"{n_tokens} tokens", f"leaves {n_tokens - 1}."):
        assert fact in str(caught.value)
    assert next(run_shard(QUESTIONS, replace(setup, model=fits), 0, 1, tmp_path / "000.parquet"))


@pytest.mark.parametrize("shard", [-1, 2])
def test_there_are_as_many_shards_as_there_are(setup: EpisodeSettings[ToolRenderer], tmp_path: Path, shard: int):
    with pytest.raises(InputError, match=rf"shard {shard} of 2: expected 0\.\.1"):
        next(run_shard(QUESTIONS, setup, shard, 2, tmp_path / "000.parquet"))


def test_the_likeliest_token_alone_is_greedy(setup: EpisodeSettings[ToolRenderer], tmp_path: Path):
    def turns(**changes: float) -> list[tuple[str, tuple[int, ...]]]:
        generation = setup.generation.model_copy(update=changes)
        changed = replace(setup, generation=generation, n_predictions=1, questions_per_batch=4)
        episodes = run_shard(QUESTIONS[:4], changed, 0, 1, tmp_path / f"{len(changes)}.parquet")
        return [(episode.question_id, episode.completion_ids) for episode in episodes]

    assert turns(temperature=1.0, top_k=1) == turns(temperature=0.0)
