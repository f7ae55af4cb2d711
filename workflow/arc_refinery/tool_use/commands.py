"""Commands of tool-use experiments."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from arc_refinery import config
from arc_refinery.asserts.split import hidden_checks
from arc_refinery.commands.flags import Command, GrpoFlags, RuleFiles, RulePath, ShardFlags
from arc_refinery.commands.outputs import Outputs, Writes, records_file
from arc_refinery.config import EPISODES, EVALUATION, RULE, TUNING
from arc_refinery.config.flags import FLAT, NEEDED, Without
from arc_refinery.errors import InputError
from arc_refinery.files import content_hash
from arc_refinery.sandbox import Executor
from arc_refinery.tool_use.calls.formats import CALL_FORMAT, CallFormat
from arc_refinery.tool_use.config import Generation, Questions, ToolChoice, ToolGrpo
from arc_refinery.tool_use.config.experiment import ToolName
from arc_refinery.tool_use.tools.built_in_tools import PYTHON_MODULES
from arc_refinery.tool_use.tools.own_tools import check_own_tools
from arc_refinery.tool_use.tools.toolbox import Toolbox
from arc_refinery.training.job import train

if TYPE_CHECKING:
    from arc_refinery.records import Conversation, Question
    from arc_refinery.tool_use.episodes.rendering import ToolRenderer
    from arc_refinery.tool_use.training.environment import ToolEnvironment

MAX_NAMED = 20  # questions in the log


class WriteQuestions(Command):
    r"""Generate or read a set of questions; a programming question is kept only if its own program passes its tests.

    Example:
        arc-refinery tools questions --name sums --form gsm8k --source generator --n-questions 40 \
            --output mine/questions.parquet
    """

    output: Annotated[Path, RULE, Writes(records_file, "questions")] = NEEDED  # file of questions
    questions: Annotated[Questions, FLAT, Without(TUNING, EPISODES)]
    sandbox: Annotated[config.Sandbox, FLAT]
    split: Annotated[Literal["train", "heldout"], RULE] = "train"  # the generator trains on 7 texts of 8
    heldout: RuleFiles = ()  # held-out sets; their questions are removed from this one
    seed: config.Seed = 0  # seed of the generator

    def run(self) -> None:
        from arc_refinery import records
        from arc_refinery.tool_use.questions.sources import questions_of, with_valid_reference, without_heldout

        questions = list(questions_of(self.questions, self.split, self.seed))
        held_out = (question for path in self.heldout for question in records.read(path, records.Question))
        unseen, reasons = without_heldout(questions, held_out)
        for reason, n in sorted(reasons.items()):
            logging.warning("%d questions were left out: %s", n, reason)
        with _two(self.sandbox) as executors:
            checked = with_valid_reference(unseen, *executors)
        _name_them("left out, because its own program does not pass its tests", checked.failing)
        _name_them("kept, with fewer asserts", checked.unchecked)
        if n_shown := sum(
            question.kind == "code_exec" and not any(hidden_checks(question.suite)) for question in checked.questions
        ):
            logging.warning(
                "%d questions show what all of their asserts call: a program that returns the shown values is correct, "
                "and the reward term passed_tests is 0. Give them more asserts",
                n_shown,
            )
        if not checked.questions:
            raise InputError(
                f"{self.questions.path or self.questions.name}: no question is left of {len(questions)}: "
                f"{len(questions) - len(unseen)} are held out, "
                f"the programs of {len(checked.failing)} do not pass their own tests. Choose other data"
            )
        settings = {
            "questions": self.questions.model_dump(exclude=config.marked(Questions, TUNING, EPISODES)),
            "split": self.split,
        }
        notes: dict[str, Any] = {
            "n_held_out": len(questions) - len(unseen),
            "failing": checked.failing,
            "unchecked": checked.unchecked,
        }
        if reasons:
            notes["held_out"] = reasons
        records.write(self.output, records.Question, checked.questions, self.seed, settings, lambda: notes)


def _name_them(what: str, reasons: Mapping[str, str]) -> None:
    """Log questions with the reason for each; after the first ones only their number, since the file names them all."""
    for name, reason in islice(reasons.items(), MAX_NAMED):
        logging.warning("question %s is %s: %s", name, what, reason)
    if len(reasons) > MAX_NAMED:
        logging.warning("and %d more are %s: see the notes of the file", len(reasons) - MAX_NAMED, what)


class ToolFlags(Command):
    """Flags shared by all commands that run episodes or render conversations."""

    model_path: config.Line  # folder with a model, or its name on the hub
    generation: Annotated[Generation, FLAT, Without(EVALUATION)]
    sandbox: Annotated[config.Sandbox, FLAT]
    tools: tuple[ToolChoice, ...] = ()  # tools to offer: `calculator python,seconds=5 mine.py:tool`
    tools_of_sets: tuple[tuple[str, ToolChoice], ...] = ()  # sets with their own: `sums calculator sums python`
    modules_of_python: bool = False  # programs may import what `python` offers, even if it is not among the tools
    files: Path | None = None  # folder for read_file, with one folder per question
    seed: config.Seed = 0  # seeds every random choice

    def renderer(self) -> "ToolRenderer":
        """Return a renderer with the model's chat template, after checking that the template supports tool calls."""
        from arc_refinery.models.tokenizers import load_tokenizer
        from arc_refinery.tool_use.episodes.rendering import ToolRenderer, with_call_format

        tokenizer, schemas, limits = load_tokenizer(self.model_path), Toolbox(self.tools).schemas, self.generation
        renderer = ToolRenderer(tokenizer, schemas, limits.enable_thinking, limits.stop_token, limits.system)
        renderer.check_stop_token()
        renderer = with_call_format(renderer, limits.call_format)
        renderer.check()
        return renderer

    def choices_of_sets(self) -> dict[str, tuple[ToolChoice, ...]]:
        """The tools of sets of questions that have other tools."""
        names = dict.fromkeys(name for name, _ in self.tools_of_sets)
        return {name: tuple(tool for other, tool in self.tools_of_sets if other == name) for name in names}

    def _all_choices(self) -> list[ToolChoice]:
        return [*self.tools, *(tool for _, tool in self.tools_of_sets)]

    def tool_words(self) -> list[str]:
        """All tools as words; those of a set after its name."""
        return [*map(str, self.tools), *(f"{name} {tool}" for name, tool in self.tools_of_sets)]

    def modules(self) -> list[str]:
        """Modules that programs of calls, and programs that are answers, may import because of the tool `python`."""
        is_offered = any(choice.tool == "python" for choice in self._all_choices())
        return PYTHON_MODULES if is_offered or self.modules_of_python else []

    def files_hash(self) -> str:
        """Hash of all that tools read, and of settings that no schema shows; empty if there is nothing."""
        from arc_refinery import records

        if self.files is not None and not self.files.is_dir():
            raise InputError(f"{self.files}: no such folder; expected one with one folder per question")
        tool_files = {path for choice in self._all_choices() for path in choice.files}
        readable = sorted(path for path in self.files.rglob("*") if path.is_file()) if self.files else []
        hashed = content_hash([*readable, *sorted(tool_files)]) if readable or tool_files or self.files else ""
        tools = self.tool_words()
        are_plain = all(word in get_args(ToolName) for word in tools)
        if are_plain and not self.modules_of_python:
            return hashed
        settings: dict[str, Any] = {"files": hashed, "tools": tools}
        if self.modules_of_python:
            settings["modules"] = self.modules()
        return records.settings_hash(settings)

    def toolboxes(self, executor: Executor, call_format: CallFormat) -> "Callable[[Question], Toolbox]":
        """Return what opens the tools for an episode; raise `InputError` if own tools cannot be loaded."""
        by_set = self.choices_of_sets()
        for offered in (self.tools, *by_set.values()):
            Toolbox(offered)  # raises if two tools have one name
        check_own_tools(self._all_choices(), executor)

        def toolbox(question: "Question") -> Toolbox:
            return Toolbox(
                by_set.get(question.question_id.partition("/")[0], self.tools),
                executor,
                self.files and self.files / question.question_id,
                self.generation.max_result_chars,
                self.generation.max_calls_per_turn,
                call_format,
            )

        return toolbox


class Conversations(ToolFlags):
    r"""Write correct answers to training questions, with and without tool calls, for supervised fine-tuning.

    Example:
        arc-refinery tools conversations --dataset-path mine/questions.parquet --model-path workflow/models/tiny-tools \
            --tools calculator --max-model-len 512 --max-turn-tokens 96 --max-episode-tokens 256 \
            --output mine/conversations.parquet
    """

    dataset_path: RuleFiles = NEEDED  # questions
    output: Annotated[Path, RULE, Writes(records_file, "conversations")] = NEEDED  # file of conversations
    without_tools: config.Share = 0.5  # share that calls no tool
    n_questions: config.PositiveInt | None = None  # number per file, from the first; default: all
    max_model_len: config.PositiveInt  # longest prompt and completion together, in tokens
    n_jobs: Annotated[config.PositiveInt, RULE] = 1  # sandbox servers

    def run(self) -> None:
        from arc_refinery import records
        from arc_refinery.tool_use.training.demonstrations import conversation
        from arc_refinery.tool_use.training.environment import check_template

        files_hash = self.files_hash()
        settings = {
            "generation": self.generation.model_dump(exclude=config.marked(Generation, EVALUATION)),
            "tools": [str(tool) for tool in self.tools],
            **({"files": files_hash} if files_hash else {}),
            "without_tools": self.without_tools,
            "n_questions": self.n_questions,
        }
        _check_sets(self.dataset_path, self.choices_of_sets())
        n_questions, n_without, n_long = 0, 0, 0
        renderer = self.renderer()
        check_template(renderer.tokenizer)  # now, not after SFT
        with self.sandbox.executor(self.n_jobs, self.modules()) as executor:
            toolbox = self.toolboxes(executor, renderer.call_format)

            def conversations() -> "Iterator[Conversation]":
                nonlocal n_questions, n_without, n_long
                for _, question in records.distinct(self._first_questions()):
                    n_questions += 1
                    tools = toolbox(question)
                    offering = renderer.offering(tools.schemas)
                    demonstration = conversation(question, tools, offering, self.without_tools, self.seed)
                    if demonstration is None:
                        n_without += 1
                    elif self._is_short_enough(demonstration, renderer):
                        yield demonstration
                    else:
                        n_long += 1

            def facts() -> dict[str, int]:
                return {"n_questions": n_questions, "n_without": n_without, "n_too_long": n_long}

            records.write(self.output, records.Conversation, conversations(), self.seed, settings, facts)
        n_conversations = records.count(self.output)
        message = (
            "%d conversations from %d questions; %d have none, because no tool gives the results of their solutions; "
        )
        logging.info(message + "%d were too long for an episode", n_conversations, n_questions, n_without, n_long)

    def _first_questions(self) -> "Iterator[tuple[Path, Question]]":
        from arc_refinery import records

        for path in self.dataset_path:
            for question in islice(records.read(path, records.Question), self.n_questions):
                yield path, question

    def _is_short_enough(self, demonstration: "Conversation", renderer: "ToolRenderer") -> bool:
        """Return whether the conversation is within the limits of an episode."""
        lengths = [len(renderer.ids(segment.text)) for segment in demonstration.segments]
        turns = [n for n, segment in zip(lengths, demonstration.segments, strict=True) if segment.is_sampled]
        limits = self.generation
        return (
            lengths[0] <= self.max_model_len - limits.max_episode_tokens
            and sum(lengths[1:]) <= limits.max_episode_tokens
            and max(turns) <= limits.max_turn_tokens
            and demonstration.n_calls <= limits.max_calls
        )


class TrainToolUse(GrpoFlags, ToolFlags):
    r"""Train a LoRA adapter with GRPO on episodes with tools; an interrupted run resumes from its last checkpoint.

    Example:
        arc-refinery train --kind tool-use --dataset-path mine/questions.parquet \
            --model-path workflow/models/tiny-tools --tools calculator --max-model-len 512 --max-turn-tokens 96 \
            --max-episode-tokens 256 --learning-rate 3e-4 --max-steps 2 --output mine/calculating
    """

    dataset_path: RuleFiles = NEEDED  # questions
    training: Annotated[ToolGrpo, FLAT]
    max_model_len: config.PositiveInt  # longest prompt and completion together, in tokens

    def run(self) -> None:
        train(self.job(self.training, self.max_model_len, self.sandbox), self._environment)

    def _environment(self) -> "Iterator[ToolEnvironment]":
        from arc_refinery import records
        from arc_refinery.tool_use.training.environment import ToolEnvironment, check_template, fitting
        from arc_refinery.training.rewards import Reward

        _check_sets(self.dataset_path, self.choices_of_sets())
        questions = [question for _, question in records.read_all(self.dataset_path, records.Question)]
        with _two(self.sandbox, self.training.n_jobs, self.modules()) as executors:
            renderer = self.renderer()
            check_template(renderer.tokenizer)
            open_toolbox = self.toolboxes(executors[0], renderer.call_format)
            yield ToolEnvironment(
                questions=fitting(
                    questions, renderer, open_toolbox, self.max_model_len, self.generation.max_episode_tokens
                ),
                renderer=renderer,
                training=self.training,
                generation=self.generation,
                open_toolbox=open_toolbox,
                names=self.tool_words(),
                executors=executors,
                files_hash=self.files_hash(),
                seed=self.seed,
                reward=Reward(self.training.rewards),
            )


class Episodes(ShardFlags, ToolFlags):
    r"""Run and grade episodes on a shard of questions; an interrupted run resumes.

    Example:
        arc-refinery tools episodes --dataset-path mine/questions.parquet --model-path workflow/models/tiny-tools \
            --tools calculator --max-model-len 512 --max-turn-tokens 96 --max-episode-tokens 256 --output mine/episodes
    """

    generation: Annotated[Generation, FLAT]
    dataset_path: RulePath = NEEDED  # questions
    n_predictions: config.PositiveInt = 8  # episodes per question
    questions_per_batch: config.PositiveInt = 8  # questions whose episodes run together
    n_jobs: Annotated[config.PositiveInt, TUNING] = 1  # sandbox servers

    def writes(self) -> Outputs:
        return {"output": [records_file(self.shard_file, "episodes")]}

    def run(self) -> None:
        from arc_refinery import records
        from arc_refinery.sampling.checks import check_model
        from arc_refinery.sampling.shard import progress_path
        from arc_refinery.tool_use.episodes.rollout import EpisodeSettings, run_shard

        _check_sets([self.dataset_path], self.choices_of_sets())
        model = self.sampler()
        check_model(model, self.lora_path)
        questions = list(records.read(self.dataset_path, records.Question))
        with _two(self.sandbox, self.n_jobs, self.modules()) as executors:
            renderer = self.renderer()
            setup = EpisodeSettings(
                model=model,
                adapter=self.lora_path,
                generation=self.generation,
                renderer=renderer,
                open_toolbox=self.toolboxes(executors[0], renderer.call_format),
                executors=executors,
                sandbox=self.sandbox,
                files_hash=self.files_hash(),
                n_predictions=self.n_predictions,
                questions_per_batch=self.questions_per_batch,
                seed=self.seed,
            )
            episodes = run_shard(questions, setup, self.shard, self.n_shards, self.shard_file)
            settings = setup.settings() | {"lora_path": self.lora_path}
            notes = {CALL_FORMAT: renderer.call_format.name}
            made_from = [self.dataset_path]
            records.write(self.shard_file, records.Episode, episodes, self.seed, settings, lambda: notes, made_from)
        progress_path(self.shard_file).unlink()


def _check_sets(paths: Iterable[Path], named: Iterable[str]) -> None:
    """Raise `InputError` if --tools-of-sets names a set of which there is no question."""
    from arc_refinery import records

    ids = [text for path in paths for text in records.texts(path, records.Question, "question_id")]
    there = {text.partition("/")[0] for text in ids}
    if unknown := sorted(set(named) - there):
        raise InputError(
            f"--tools-of-sets names the set {unknown[0]}, but the questions are of {', '.join(sorted(there))}; "
            "correct it"
        )


@contextmanager
def _two(sandbox: config.Sandbox, n_jobs: int = 1, modules: Sequence[str] = ()) -> Iterator[tuple[Executor, Executor]]:
    """Open one executor that runs programs, and one that only compares their results (asserts/run.py)."""
    with sandbox.executor(n_jobs, modules) as candidates, sandbox.executor(1) as graders:
        yield candidates, graders


Train = TrainToolUse
