"""Attempts as conversations, for programs that read chat data."""

from collections.abc import Iterator

from arc_refinery.evaluation.sides import Side
from arc_refinery.models.chat import Message
from arc_refinery.refining.config import Refining
from arc_refinery.refining.domain import GradedAttempt, load_domain
from arc_refinery.refining.evaluation.results import load_results
from arc_refinery.refining.graded import read_graded
from arc_refinery.refining.prompts import split_prefix
from arc_refinery.reporting.export import Exported


def exported(side: Side[Refining], set_name: str) -> Iterator[Exported]:
    """Yield the attempts of a side's arms on a set, arm by arm and turn by turn; arms may share first turns."""
    experiment, folder = side.experiment, side.folder
    domain, task_set = load_domain(experiment.domain), experiment.evaluation_set(set_name)
    for name in [side.arm] if side.arm else side.experiment.repetitions:
        for arm in experiment.arms_called(name):
            results = load_results(experiment, folder, task_set, [arm])
            seed = experiment.training_seed(arm)
            run = str(experiment.seed if seed is None else seed)
            for turn, branch in enumerate(arm.branches, 1):
                wanted = set(results.attempts_of_turn(arm, turn)["attempt_id"])
                for graded in read_graded(domain, experiment.files(folder, set_name, branch)):
                    if graded.attempt.attempt_id in wanted:
                        place = {"set": set_name, "arm": name, "run": run, "repetition": arm.name}
                        yield _exported(graded, place, f"{set_name}/{branch}")


def _exported(graded: GradedAttempt, place: dict[str, str], branch: str) -> Exported:
    prompt, attempt, verdict = graded.prompt, graded.attempt, graded.verdict
    asked = list(prompt.messages) or [Message(role="user", content=prompt.text)]
    messages, prefix = split_prefix(asked)
    return Exported(
        prompt=messages,
        completion=[Message(role="assistant", content=f"{prefix}{attempt.completion}")],
        score=float(verdict.solved),
        row={
            "id": attempt.attempt_id,
            "task_id": attempt.task_id,
            **place,
            "turn": attempt.turn,
            "refines": attempt.parent_id,
            "status": verdict.status,
            "shown_score": verdict.score,
            "model": attempt.model,
            "adapter": attempt.adapter,
            "n_tokens": attempt.n_tokens,
            "finish_reason": attempt.finish_reason,
        },
        is_cut=attempt.finish_reason == "length",
        branch=branch,
    )
