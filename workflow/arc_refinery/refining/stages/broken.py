"""The stage that breaks tasks' own right programs: first turns to refine that no model samples.

task        double, which shows `double(2) == 4`, has the program `return 2 * n`
tried       `return 2 // n`, `return 3 * n`, `return 2 + n`: the last one is right on what the prompt shows
prompt      double/turn1-broken-000, for 2 answers
attempts    double/turn1-broken-000/000 and /001, of the model `broken`
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from math import nan
from pathlib import Path
from typing import Annotated, Any

from tqdm import tqdm

from arc_refinery import records
from arc_refinery.config import PositiveInt, Sandbox, Seed
from arc_refinery.config.base import Strict
from arc_refinery.domains.domain import Domain, LoadedDomain
from arc_refinery.domains.first_turn import first_turn_prompts
from arc_refinery.domains.prompts import Renderer, begun_answer, behind_thought
from arc_refinery.errors import InputError
from arc_refinery.outputs import Writes, records_file
from arc_refinery.records import Attempt, Prompt
from arc_refinery.refining.config import BROKEN, BROKEN_BRANCH, PromptedModel, Sampling
from arc_refinery.refining.grading import can_be_refined, verdicts_of
from arc_refinery.refining.prompt_files import write_prompts
from arc_refinery.refining.stages.prompts import Prompts, wording_of
from arc_refinery.sandbox import Executor
from arc_refinery.seeding import stream

N_ROUNDS = 8  # in each, every task that lacks wrong programs tries as many as it should have
TASKS_AT_ONCE = 200


def break_programs(
    domain: LoadedDomain,
    model: PromptedModel,
    sampling: Sampling,
    sandbox: Sandbox,
    include_errors: bool,
    seed: Seed,
    own: Strict | None = None,
    enable_thinking: bool | None = None,
    *,
    tasks: Path,
    n_jobs: PositiveInt = 1,
    prompts: Prompts,
    output: Annotated[Path, Writes(records_file, "attempts")],
) -> None:
    """Write first-turn prompts and, as attempts at them, the tasks' own programs, each with a mutation.

    All are wrong on a check that the prompt shows, and differ in what they give; with `include_errors`, some raise. A
    task has `sampling.n_predictions` of them, or as many as were found.
    """
    wording, answer = wording_of(domain, model), sampling.max_output_tokens
    renderer = Renderer(model.path, enable_thinking, model.is_served)
    wrong: dict[str, list[Attempt]] = {}  # by prompt
    with domain.executors(sandbox, n_jobs) as executors:
        sources = domain.source_answers(records.read(tasks, domain.task_class), wording, executors)
        if not sources:
            raise InputError(
                f"{tasks}: none of its tasks has a right program of its own, so there is nothing to break; choose "
                "other tasks, or set `answers` to sampled"
            )
        by_id = {task.task_id: task for task in records.read(tasks, domain.task_class) if task.task_id in sources}
        asked = first_turn_prompts(domain, by_id.values(), 1, sampling, wording, renderer, seed, BROKEN_BRANCH, own)
        search = _Search(domain, by_id, sources, sampling.n_predictions, include_errors, seed, renderer, executors)

        def answered() -> Iterator[Prompt]:
            with tqdm(total=len(by_id), unit="task", mininterval=5) as progress:
                while some := list(islice(asked, TASKS_AT_ONCE)):
                    wrong.update(search.wrong_answers(some))
                    progress.update(len(some))
                    yield from (
                        replace(prompt, n_predictions=n) for prompt in some if (n := len(wrong[prompt.prompt_id]))
                    )

        settings = {"template": domain.texts(wording), "max_model_len": model.window, "sandbox": sandbox.model_dump()}
        settings |= {"sampling": sampling.model_dump(), "include_errors": include_errors, "n_rounds": N_ROUNDS}
        write_prompts(domain.prompt_class, prompts, answered(), model.window, answer, seed, settings, [tasks])
    prompt_ids = records.texts(prompts, domain.prompt_class, "prompt_id")  # without those that are too long
    attempts = (attempt for prompt_id in prompt_ids for attempt in wrong[prompt_id])
    records.write(output, domain.attempt_class, attempts, seed, settings, made_from=[prompts])
    numbers = sum(map(bool, wrong.values())), len(sources), sum(map(len, wrong.values()))
    logging.info("%d of %d tasks with a right program have broken ones, %d in all", *numbers)


@dataclass(frozen=True, slots=True)
class _Search:
    """The search for wrong answers among broken ones."""

    domain: Domain
    tasks: Mapping[str, Any]
    sources: Mapping[str, str]  # whole right answers, by task
    n_wanted: int  # per task
    include_errors: bool
    seed: int
    renderer: Renderer
    executors: tuple[Executor, ...]

    def wrong_answers(self, prompts: Sequence[Prompt]) -> dict[str, list[Attempt]]:
        """Return the first broken answers to each prompt that are wrong, each in another way."""
        untried = {prompt.prompt_id: self._broken(prompt) for prompt in prompts}
        wrong: dict[str, dict[str, Attempt]] = {name: {} for name in untried}  # by prompt, and by what they give
        for _ in range(N_ROUNDS):
            tried = [
                attempt
                for name, attempts in untried.items()
                if len(wrong[name]) < self.n_wanted
                for attempt in islice(attempts, self.n_wanted)
            ]
            if not tried:
                break
            for attempt, verdict in zip(
                tried, verdicts_of(self.domain, tried, self.tasks, self.executors), strict=True
            ):
                if can_be_refined(verdict, self.domain, self.include_errors):
                    wrong[attempt.prompt_id].setdefault(verdict.fingerprint or verdict.program_hash, attempt)
        return {
            name: [
                replace(attempt, attempt_id=records.attempt_id(name, number))
                for number, attempt in enumerate(islice(attempts.values(), self.n_wanted))
            ]
            for name, attempts in wrong.items()
        }

    def _broken(self, prompt: Prompt) -> Iterator[Attempt]:
        """Yield attempts with broken programs, numbered as they are tried."""
        domain, task_id = self.domain, prompt.task_id
        detail = domain.attempt_detail(prompt)
        own = {} if detail is None else {"detail": detail}
        rng = stream(self.seed, "break", task_id)
        with domain.calling("broken", task_id):
            for number, answer in enumerate(domain.broken(self.tasks[task_id], self.sources[task_id], rng)):
                completion = behind_thought(prompt.text, answer)
                yield domain.attempt_class(
                    attempt_id=records.attempt_id(prompt.prompt_id, number),
                    prompt_id=prompt.prompt_id,
                    task_id=task_id,
                    turn=prompt.turn,
                    parent_id="",
                    model=BROKEN,
                    adapter="",
                    seed=self.seed,
                    temperature=0.0,
                    top_p=1.0,
                    completion=completion,
                    n_prompt_tokens=prompt.n_tokens,
                    n_tokens=self.renderer.count(completion.removeprefix(begun_answer(prompt))) + 1,
                    finish_reason="stop",
                    logprob=nan,  # no model sampled it
                    **own,
                )
