"""The stages of tool use, in running order: plain functions (arc_refinery.stages)."""

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

from arc_refinery import records
from arc_refinery.config import (
    EPISODES,
    EVALUATION,
    REPORT,
    TUNING,
    Guard,
    Lora,
    ModelConfig,
    NonNegativeInt,
    PositiveInt,
    Sandbox,
    Seed,
    Share,
    marked,
)
from arc_refinery.errors import InputError
from arc_refinery.files import content_hash
from arc_refinery.outputs import Writes, records_file
from arc_refinery.records import Conversation, Question
from arc_refinery.refining.config import Split
from arc_refinery.sandbox import Executor
from arc_refinery.stages import Adapter, Checkpoints, Curves, Files, Measurements
from arc_refinery.tool_use.calls.formats import CALL_FORMAT, CallFormat
from arc_refinery.tool_use.config import Generation, Questions, ToolChoice, ToolGrpo
from arc_refinery.tool_use.config.experiment import Given, ToolName
from arc_refinery.tool_use.grading.domains import setup_of
from arc_refinery.tool_use.grading.rewards import Executors
from arc_refinery.tool_use.tools.built_in_tools import PYTHON_MODULES
from arc_refinery.tool_use.tools.own_tools import check_own_tools
from arc_refinery.tool_use.tools.toolbox import Toolbox
from arc_refinery.training.job import TrainingJob
from arc_refinery.training.job import train as train_in_processes

if TYPE_CHECKING:
    from arc_refinery.tool_use.episodes.rendering import ToolRenderer
    from arc_refinery.tool_use.episodes.served import ServedRenderer
    from arc_refinery.tool_use.training.environment import ToolEnvironment

STAGES = ("questions", "conversations", "episodes")
Tools = tuple[ToolChoice, ...]


def questions(
    questions: Questions,
    sandbox: Sandbox,
    *,
    split: Split,
    heldout: Files = (),
    output: Annotated[Path, Writes(records_file, "questions")],
) -> None:
    """Generate or read a set of questions; a task of `code` is one only if its own program passes its tests.

    A generator makes other ones to train on than to hold out. Questions of the sets `heldout` are removed.
    """
    from arc_refinery.tool_use.questions.sources import questions_of, without_heldout

    left_out: Counter[str] = Counter()
    read = list(questions_of(questions, split, sandbox, left_out))
    for reason, n in left_out.items():
        logging.warning("%d rows give no question: %s", n, reason)
    held_out = (question for path in heldout for question in records.read(path, Question))
    unseen, reasons = without_heldout(read, held_out)
    for reason, n in sorted(reasons.items()):
        logging.warning("%d questions were left out: %s", n, reason)
    if not unseen:
        raise InputError(f"{questions.name}: all of its {len(read)} questions are held out. Choose other data")
    exclude = marked(type(questions), TUNING, EPISODES, REPORT)
    settings = {"questions": questions.model_dump(exclude=exclude), "split": split}
    notes: dict[str, Any] = {"n_held_out": len(read) - len(unseen), "left_out": dict(left_out)}
    if reasons:
        notes["held_out"] = reasons
    seed = getattr(questions, "seed", None) or 0
    records.write(output, Question, unseen, seed, settings, lambda: notes)


@dataclass(frozen=True, slots=True)
class Offer:
    """The tools that episodes offer, and how calls and results are written."""

    generation: Generation
    tools: Tools
    modules_of_python: bool  # programs may import what `python` offers, even if it is not among the tools
    tools_of_sets: Mapping[str, Tools] = field(default_factory=dict)  # sets with their own
    files: Path | None = None  # folder for read_file, with one folder per question
    others: Mapping[str, Question] = field(default_factory=dict)  # given to a question's tools instead of itself

    def _all(self) -> list[ToolChoice]:
        return [*self.tools, *(tool for tools in self.tools_of_sets.values() for tool in tools)]

    @property
    def words(self) -> list[str]:
        """All tools as words; those of a set after its name."""
        of_sets = [f"{name} {tool}" for name, tools in self.tools_of_sets.items() for tool in tools]
        return [*map(str, self.tools), *of_sets]

    def modules(self) -> list[str]:
        """Modules that programs of calls, and programs that are answers, may import because of the tool `python`."""
        return PYTHON_MODULES if self.modules_of_python else []

    def files_hash(self) -> str:
        """Hash of all that tools read, and of settings that no schema shows; empty if there is nothing."""
        if self.files is not None and not self.files.is_dir():
            raise InputError(f"{self.files}: no such folder; expected one with one folder per question")
        tool_files = {path for choice in self._all() for path in choice.files}
        readable = sorted(path for path in self.files.rglob("*") if path.is_file()) if self.files else []
        hashed = content_hash([*readable, *sorted(tool_files)]) if readable or tool_files or self.files else ""
        are_plain = all(word in get_args(ToolName) for word in self.words)
        if are_plain and not self.modules_of_python and not self.others:
            return hashed
        settings: dict[str, Any] = {"files": hashed, "tools": self.words}
        if self.others:
            settings["given"] = {name: repr(other) for name, other in self.others.items()}
        if self.modules_of_python:
            settings["modules"] = self.modules()
        return records.settings_hash(settings)

    def open(self, model_path: str, executor: Executor) -> tuple["ToolRenderer", Callable[[Question], Toolbox]]:
        """Return the renderer of prompts and turns, and what opens the tools of an episode.

        Raise `InputError` unless the model's chat template supports tool calls, and own tools can be loaded.
        """
        from arc_refinery.models.tokenizers import load_tokenizer
        from arc_refinery.tool_use.episodes.rendering import ToolRenderer, with_call_format

        tokenizer, schemas, limits = load_tokenizer(model_path), Toolbox(self.tools).schemas, self.generation
        renderer = ToolRenderer(tokenizer, schemas, limits.enable_thinking, limits.stop_token, limits.system)
        _ = renderer.stop_id  # raises if the model has no such token
        renderer = with_call_format(renderer, limits.call_format)
        renderer.check()
        return renderer, self._opener(renderer.call_format, executor)

    def open_served(self, executor: Executor) -> tuple["ServedRenderer", Callable[[Question], Toolbox]]:
        """Return the same for a model that a server renders."""
        from arc_refinery.tool_use.episodes.served import ServedRenderer

        renderer = ServedRenderer.of(self.generation, Toolbox(self.tools))
        return renderer, self._opener(renderer.call_format, executor)

    def _opener(self, call_format: CallFormat, executor: Executor) -> Callable[[Question], Toolbox]:
        check_own_tools(self._all(), executor)
        limits = self.generation

        def open_toolbox(question: Question) -> Toolbox:
            return Toolbox(
                self.tools_of_sets.get(question.question_id.partition("/")[0], self.tools),
                executor,
                self.files and self.files / question.question_id,
                limits.max_result_chars,
                limits.max_calls_per_turn,
                call_format,
                setup_of(self.others.get(question.question_id, question)),
            )

        return open_toolbox


def conversations(
    model: ModelConfig,
    generation: Generation,
    tools: Tools,
    tools_of_sets: dict[str, Tools],
    modules_of_python: bool,
    sandbox: Sandbox,
    without_tools: Share,
    n_questions: PositiveInt | None,
    seed: Seed,
    *,
    questions: Files,
    output: Annotated[Path, Writes(records_file, "conversations")],
) -> None:
    """Write correct answers to training questions, with and without tool calls, for supervised fine-tuning.

    The share `without_tools` calls no tool; of each file, the first `n_questions` are demonstrated.
    """
    from arc_refinery.tool_use.training.demonstrations import conversation
    from arc_refinery.tool_use.training.environment import check_template

    offer = Offer(generation, tools, modules_of_python, tools_of_sets)
    files_hash = offer.files_hash()
    settings = {
        "generation": generation.model_dump(exclude=marked(Generation, EVALUATION)),
        "tools": [str(tool) for tool in tools],
        **({"files": files_hash} if files_hash else {}),
        "without_tools": without_tools,
        "n_questions": n_questions,
    }
    counts = Counter(n_questions=0, n_without=0, n_too_long=0)
    longest_prompt = model.window - generation.max_episode_tokens
    with sandbox.executor(1, offer.modules()) as executor:
        renderer, open_toolbox = offer.open(model.path, executor)
        check_template(renderer.tokenizer)  # now, not after SFT

        def written() -> Iterator[Conversation]:
            first = ((path, one) for path in questions for one in islice(records.read(path, Question), n_questions))
            for _, question in records.distinct(first):
                counts["n_questions"] += 1
                opened = open_toolbox(question)
                demonstration = conversation(question, opened, renderer.offering(opened.schemas), without_tools, seed)
                if demonstration is None:
                    counts["n_without"] += 1
                elif _is_short_enough(demonstration, renderer, generation, longest_prompt):
                    yield demonstration
                else:
                    counts["n_too_long"] += 1

        records.write(output, Conversation, written(), seed, settings, lambda: dict(counts))
    message = "%d conversations from %d questions; %d have none, because no tool gives the results of their solutions; "
    logging.info(message + "%d were too long for an episode", records.count(output), *counts.values())


def _is_short_enough(
    demonstration: Conversation, renderer: "ToolRenderer", limits: Generation, longest_prompt: int
) -> bool:
    """Return whether the conversation is within the limits of an episode."""
    lengths = [len(renderer.ids(segment.text)) for segment in demonstration.segments]
    turns = [n for n, segment in zip(lengths, demonstration.segments, strict=True) if segment.is_sampled]
    return (
        lengths[0] <= longest_prompt
        and sum(lengths[1:]) <= limits.max_episode_tokens
        and max(turns) <= limits.max_turn_tokens
        and demonstration.n_calls <= limits.max_calls
    )


def train(
    model: ModelConfig,
    lora: Lora,
    grpo: ToolGrpo,
    guard: Guard,
    generation: Generation,
    tools: Tools,
    tools_of_sets: dict[str, Tools],
    modules_of_python: bool,
    sandbox: Sandbox,
    files: Path | None,
    seed: Seed,
    until_step: PositiveInt | None = None,
    *,
    data: Files,
    start: Path | None = None,
    before: Path | None = None,
    output: Adapter,
    checkpoints: Checkpoints,
    measurements: Measurements,
    tensorboard: Curves,
) -> None:
    """Train a LoRA adapter with GRPO on episodes with tools; an interrupted job resumes.

    `start` is the adapter to start from, by default a new one; `before` the adapter of the part of this training that
    ended before, and `until_step` ends this part.
    """
    offer = Offer(generation, tools, modules_of_python, tools_of_sets, files)

    def environment() -> "Iterator[ToolEnvironment]":
        from arc_refinery.tool_use.training.environment import ToolEnvironment, check_template, fitting

        questions = [question for _, question in records.read_all(data, Question)]
        with _executors(sandbox, grpo.n_jobs, offer.modules()) as executors:
            renderer, open_toolbox = offer.open(model.path, executors[0])
            check_template(renderer.tokenizer)
            yield ToolEnvironment(
                questions=fitting(questions, renderer, open_toolbox, model.window, generation.max_episode_tokens),
                renderer=renderer,
                training=grpo,
                generation=generation,
                open_toolbox=open_toolbox,
                names=offer.words,
                executors=executors,
                files_hash=offer.files_hash(),
                seed=seed,
            )

    job = TrainingJob(
        model=model,
        lora=lora,
        training=grpo,
        guard=guard,
        sandbox=sandbox,
        seed=seed,
        start=start,
        until_step=until_step,
        before=before,
        output=output,
        work=checkpoints,
        measurements=measurements,
        tensorboard=tensorboard,
    )
    train_in_processes(job, environment)


def episodes(
    model: ModelConfig,
    generation: Generation,
    tools: Tools,
    modules_of_python: bool,
    sandbox: Sandbox,
    files: Path | None,
    given: Given,
    n_predictions: PositiveInt,
    questions_per_batch: PositiveInt,
    seed: Seed,
    n_jobs: PositiveInt = 1,
    run: Path | None = None,
    *,
    questions: Path,
    adapter: Path | None = None,
    shard: NonNegativeInt = 0,
    n_shards: PositiveInt = 1,
    output: Annotated[Path, Writes(records_file, "episodes")],
) -> None:
    """Run and grade episodes on a shard of questions; an interrupted job resumes.

    `given` is the task that tools have. `run` is the folder of all results, where tokens are counted against a limit.
    """
    from arc_refinery.sampling.checks import check_model
    from arc_refinery.sampling.shard import progress_path
    from arc_refinery.tool_use.episodes import rollout, served

    if not model.is_served:
        check_model(model, adapter)
    asked = list(records.read(questions, Question))
    if given != "own" and not any(setup_of(question)[0] for question in asked):
        raise InputError(f"{questions}: given is {given}, but the domain gives tools nothing; set it to own")
    others = {} if given == "own" else {asked[index - 1].question_id: other for index, other in enumerate(asked)}
    offer = Offer(generation, tools, modules_of_python, files=files, others=others)
    with _executors(sandbox, n_jobs, offer.modules()) as executors:
        opened = offer.open_served(executors[0]) if model.is_served else offer.open(model.path, executors[0])
        renderer, open_toolbox = opened
        renderer = renderer.offering(open_toolbox(asked[0]).schemas)  # which may say what they have of the question
        setup: rollout.EpisodeSettings[Any] = rollout.EpisodeSettings(
            model=model,
            adapter=adapter,
            generation=generation,
            renderer=renderer,
            open_toolbox=open_toolbox,
            executors=executors,
            sandbox=sandbox,
            files_hash=offer.files_hash(),
            n_predictions=n_predictions,
            questions_per_batch=questions_per_batch,
            seed=seed,
        )
        notes: dict[str, Any] = {CALL_FORMAT: renderer.call_format.name}
        of_shard = (asked, setup, shard, n_shards, output)
        sampled = served.run_shard(*of_shard, notes, run) if model.is_served else rollout.run_shard(*of_shard)
        settings = setup.settings() | {"lora_path": adapter}
        records.write(output, records.Episode, sampled, seed, settings, lambda: notes, [questions])
    progress_path(output).unlink()


@contextmanager
def _executors(sandbox: Sandbox, n_jobs: int = 1, modules: Sequence[str] = ()) -> Iterator[Executors]:
    """Open executors for tools and visible tests, for hidden tests, and for comparisons (asserts/run.py)."""
    with ExitStack() as stack:
        running = [stack.enter_context(sandbox.executor(n_jobs, modules)) for _ in range(2)]
        yield *running, stack.enter_context(sandbox.executor(1))
