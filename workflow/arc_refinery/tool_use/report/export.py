"""Episodes as conversations, for programs that read chat data."""

from collections.abc import Iterator

from arc_refinery import records
from arc_refinery.evaluation.sides import Side
from arc_refinery.models.chat import Message
from arc_refinery.records.tool_use import Episode, Question
from arc_refinery.reporting.export import Exported
from arc_refinery.tool_use.config import ToolUse
from arc_refinery.tool_use.grading.evaluated import load_questions
from arc_refinery.tool_use.tools.toolbox import Toolbox


def exported(side: Side[ToolUse], set_name: str) -> Iterator[Exported]:
    """Yield the episodes of a side's arms on a set; calls are in the texts, in the model's own format."""
    experiment, folder = side.experiment, side.folder
    settings = experiment.sets[set_name]
    system = experiment.generation.system
    before = [Message(role="system", content=system)] if system else []
    questions = {row.question_id: row for row in records.read(folder / f"questions/{set_name}.parquet", Question)}
    offered = Toolbox(experiment.tools_of(set_name)).schemas
    for name in [side.arm] if side.arm else experiment.repetitions:
        for arm in experiment.arms_called(name):
            load_questions(experiment, folder, settings, [arm.name])  # checks the files
            seed = experiment.training_seed(arm)
            for shard in range(settings.shards):
                for episode in records.read(folder / set_name / arm.name / f"{shard:03d}.parquet", Episode):
                    yield Exported(
                        prompt=[*before, Message(role="user", content=questions[episode.question_id].text)],
                        completion=[Message(role=turn.role, content=turn.content) for turn in episode.messages],
                        score=episode.reward,
                        row={
                            "id": episode.episode_id,
                            "task_id": episode.question_id,
                            "set": set_name,
                            "arm": name,
                            "run": str(experiment.seed if seed is None else seed),
                            "repetition": arm.name,
                            "ending": episode.ending,
                            "answer": episode.answer,
                            "n_calls": len(episode.calls),
                            "model": episode.model,
                            "adapter": episode.adapter,
                            "n_tokens": episode.n_tokens,
                            "tools": offered if arm.tools else [],
                        },
                        is_cut=episode.ending in ("truncated", "tokens"),
                        branch=f"{set_name}/{arm.name}",
                    )
