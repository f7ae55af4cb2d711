"""Episodes on a held-out set of questions, by arm and question, and comparisons of them, paired by question.

Arm `trained` of the tool-use demo, 8 episodes on each of 200 questions: pass_at("trained", 1) == [1.0, 0.875, ...]
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from arc_refinery import records
from arc_refinery.config import EPISODES, TUNING, inputs, marked
from arc_refinery.errors import InputError
from arc_refinery.evaluation.sides import Runs, Side, by_training, check_rows
from arc_refinery.evaluation.statistics import pass_at_k
from arc_refinery.records import RecordError
from arc_refinery.records.tool_use import Episode, Question
from arc_refinery.reporting.compare import why_sets_differ
from arc_refinery.tool_use.calls.formats import CALL_FORMAT, FORMATS, HERMES
from arc_refinery.tool_use.config import Questions, ToolUse
from arc_refinery.tool_use.grading.metrics import EpisodeTexts, majority_is_correct, measure_texts, pass_rates


@dataclass(frozen=True, slots=True)
class EvaluatedQuestions:
    """One held-out set: its questions, and the episodes of each arm by question, in the questions' order.

    Episodes are kept without messages and token ids: those of all arms would not fit in memory. `texts` has the sizes
    of their texts, in the same order.
    """

    settings: Questions
    questions: dict[str, Question]
    episodes: dict[str, dict[str, list[Episode]]]
    texts: dict[str, dict[str, list[EpisodeTexts]]]
    folder: Path  # its episodes, one folder per arm

    def full_episode(self, arm: str, episode_id: str) -> Episode:
        """Read an episode with its messages and token ids."""
        files = sorted((self.folder / arm).glob("*.parquet"))
        episodes = (episode for path in files for episode in records.read(path, Episode))
        return next(episode for episode in episodes if episode.episode_id == episode_id)

    def only(self, question_ids: Iterable[str]) -> "EvaluatedQuestions":
        """Return the same with some of the questions, in that order."""
        ids = list(question_ids)

        def selected(by_question: dict[str, Any]) -> dict[str, Any]:
            return {question_id: by_question[question_id] for question_id in ids}

        episodes = {arm: selected(by_question) for arm, by_question in self.episodes.items()}
        texts = {arm: selected(by_question) for arm, by_question in self.texts.items()}
        return replace(self, questions=selected(self.questions), episodes=episodes, texts=texts)

    def episodes_of_arm(self, arm: str) -> list[Episode]:
        return [episode for episodes in self.episodes[arm].values() for episode in episodes]

    def texts_of_arm(self, arm: str) -> list[EpisodeTexts]:
        return [texts for group in self.texts[arm].values() for texts in group]

    def majority(self, arm: str) -> list[float]:
        """Return for each question whether the most frequent answer is correct."""
        return [majority_is_correct(episodes) for episodes in self.episodes[arm].values()]

    def pass_rates(self, arm: str, with_calls: bool) -> list[float]:
        """Return the share of correct episodes with calls, or without, of each question that has such episodes."""
        return pass_rates(list(self.episodes[arm].values()), with_calls)

    def pass_at(self, arm: str, k: int) -> list[float]:
        """Return pass@k of each question."""
        return [
            pass_at_k(len(episodes), sum(episode.reward == 1.0 for episode in episodes), k)
            for episodes in self.episodes[arm].values()
        ]


def load_questions(experiment: ToolUse, folder: Path, settings: Questions, arms: Iterable[str]) -> EvaluatedQuestions:
    """Load the episodes of some arms on a held-out set from the experiment's folder; raises `RecordError`."""
    source, evaluation = folder / f"questions/{settings.name}.parquet", experiment.evaluation
    questions = {question.question_id: question for question in records.read(source, Question)}
    if not questions:
        raise RecordError(f"{source}: has no questions, so nothing can be compared")
    answers = {
        name: question.reference if question.kind == "exact_match" else "" for name, question in questions.items()
    }
    episodes, texts = {}, {}
    files = {arm: [folder / settings.name / arm / f"{n:03d}.parquet" for n in range(settings.shards)] for arm in arms}
    check_arms_differ(experiment, settings.name, files)
    for arm, paths in files.items():
        by_question: dict[str, list[Episode]] = {question_id: [] for question_id in questions}
        texts_by_question: dict[str, list[EpisodeTexts]] = {question_id: [] for question_id in questions}
        for shard, path in enumerate(paths):
            batches = records.batches_of_shard([*questions], evaluation.questions_per_batch, shard, settings.shards)
            records.check_episodes(path, source, [*chain.from_iterable(batches)], evaluation.n_predictions)
            check_episodes(experiment, path, arm)
            call_format = FORMATS[records.notes(path).get(CALL_FORMAT, HERMES.name)]  # earlier versions had one
            has_tools = experiment.arm(arm).tools and experiment.tools_of(settings.name)
            for episode in records.read(path, Episode):
                if not has_tools and any(call.tool for call in episode.calls):
                    raise RecordError(
                        f"{path}: {episode.episode_id} calls a tool, but the arm {arm} has none; is it of another "
                        f"arm? {records.remake(path)}"
                    )
                by_question[episode.question_id].append(replace(episode, messages=(), completion_ids=(), mask=()))
                texts_by_question[episode.question_id].append(
                    measure_texts(episode, call_format, answers[episode.question_id])
                )
        episodes[arm], texts[arm] = by_question, texts_by_question
    return EvaluatedQuestions(settings, questions, episodes, texts, folder / settings.name)


@dataclass(frozen=True, slots=True)
class QuestionsOfSide:
    """Episodes of some arms of a side on one set."""

    side: Side[ToolUse]
    evaluated: EvaluatedQuestions
    arms: tuple[str, ...]  # names in `Side.arms`

    def pass_rates(self, arm: str) -> Runs:
        """Return pass@1 of each question, by training."""
        experiment = self.side.experiment
        rates = [self.evaluated.pass_at(run.name, 1) for run in experiment.arms_called(arm)]
        return by_training(experiment, arm, rates)


def load_questions_of_side(side: Side[ToolUse], set_name: str, arms: Iterable[str]) -> QuestionsOfSide:
    """Load the episodes of some arms of a side on a set."""
    names = tuple(arms)
    repeated = [arm.name for name in names for arm in side.experiment.arms_called(name)]
    settings = side.experiment.sets[set_name]
    return QuestionsOfSide(side, load_questions(side.experiment, side.folder, settings, repeated), names)


def on_shared_questions(first: QuestionsOfSide, second: QuestionsOfSide) -> tuple[QuestionsOfSide, QuestionsOfSide]:
    """Return both sides with the questions that both have, in the first one's order.

    Raises `InputError` if one id names two questions.
    """
    ours, theirs = first.evaluated.questions, second.evaluated.questions
    common = [question_id for question_id in ours if question_id in theirs]
    if changed := [question_id for question_id in common if ours[question_id] != theirs[question_id]]:
        name = f"{first.evaluated.settings.name}.parquet"
        paths = [loaded.side.folder / "questions" / name for loaded in (first, second)]
        raise InputError(
            f"{paths[0]} and {paths[1]}: the question {changed[0]} has different texts, answers or tests in them: "
            f"{why_questions_differ(first, second)}. Give both experiments the same questions"
        )
    first, second = (replace(loaded, evaluated=loaded.evaluated.only(common)) for loaded in (first, second))
    return first, second


def why_questions_differ(first: QuestionsOfSide, second: QuestionsOfSide) -> str:
    """Return the settings in which the sets of two sides differ."""
    without = marked(Questions, TUNING, EPISODES)
    return why_sets_differ(
        [
            {"seed": loaded.side.experiment.seed} | loaded.evaluated.settings.model_dump(exclude=without)
            for loaded in (first, second)
        ]
    )


def check_episodes(experiment: ToolUse, path: Path, arm: str) -> None:
    """Raise `RecordError` unless the episodes in a file are of this arm, as far as they say."""
    generation = experiment.generation
    expected = {
        "model": ("model.path", inputs.model_path(experiment, experiment.model)),
        "adapter": (f"the adapter of the arm {arm}", experiment.adapter_of(arm) or ""),
        "seed": ("seed", experiment.seed),
        "temperature": ("generation.temperature", generation.temperature),
        "top_p": ("generation.top_p", generation.top_p),
    }
    check_rows(path, Episode, expected)


def check_arms_differ(experiment: ToolUse, questions: str, files: Mapping[str, list[Path]]) -> None:
    """Raise `RecordError` unless the files of an arm were made with the same settings, and other arms with others."""
    owners: dict[str, tuple[str, Path]] = {}
    for arm, paths in files.items():
        made_with = {path: records.settings_of(path) for path in paths}
        for path, settings in made_with.items():
            if settings != made_with[paths[0]]:
                raise RecordError(f"{path}: was made with other settings than {paths[0]}. {records.remake(path)}")
        other, path = owners.setdefault(made_with[paths[0]], (arm, paths[0]))
        if _settings_of_arm(experiment, questions, arm) != _settings_of_arm(experiment, questions, other):
            raise RecordError(
                f"{paths[0]}: was made with the settings of {path}, but the arms {other} and {arm} differ; one file is "
                f"a copy. {records.remake(paths[0])}"
            )


def _settings_of_arm(experiment: ToolUse, questions: str, arm: str) -> tuple[Any, ...]:
    settings = experiment.arm(arm)
    tools = experiment.tools_of(questions) if settings.tools else ()
    return tools, experiment.adapter_of(arm)
