"""The stage that scores reading without sampling: how likely the right program is as the answer to a prompt.

prompt    "mirror/refine-turn2-000", which ends with the feedback on a wrong program
answer    "```python\\nfrom common import *\\n\\ndef transform(grid):\\n    return grid[::-1]\\n```", the task's own
record    logprob -4.71 of 9 tokens, end token included
"""

import logging
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

from arc_refinery import records
from arc_refinery.config import PositiveInt, Sandbox
from arc_refinery.domains.domain import Domain, LoadedDomain
from arc_refinery.domains.prompts import Renderer, rest_of_answer
from arc_refinery.errors import InputError
from arc_refinery.outputs import Writes, records_file
from arc_refinery.records import Prompt, ReferenceLogprob
from arc_refinery.refining.config import PromptedModel
from arc_refinery.refining.stages.prompts import wording_of
from arc_refinery.sampling.checks import check_answers_end, check_model


def reference_logprobs(
    domain: LoadedDomain,
    model: PromptedModel,
    sandbox: Sandbox,
    *,
    tasks: Path,
    prompts: Path,
    adapter: Path | None = None,
    n_jobs: PositiveInt = 1,
    output: Annotated[Path, Writes(records_file, ReferenceLogprob.KIND)],
) -> None:
    """Compute the log-probability of each task's own program as the answer to each prompt."""
    tokenizer = check_model(model, adapter)
    check_answers_end(tokenizer)
    wording = wording_of(domain, model)
    with domain.executors(sandbox, n_jobs) as executors:
        answers = domain.source_answers(records.read(tasks, domain.task_class), wording, executors)
    if not answers:
        raise InputError(
            f"{tasks}: no task has a right program of its own, which evaluation.reference_logprobs scores; set it to "
            "false, or evaluate on tasks with programs"
        )
    counts = Counter(n_without_program=0, n_too_long=0)
    read = records.read(prompts, domain.prompt_class)
    answered = list(_answered(domain, read, answers, model, tokenizer, counts))
    logging.info("%d prompts are scored; %s", len(answered), dict(counts))

    from arc_refinery.sampling.given_answers import GivenAnswer, answer_logprobs

    given = [GivenAnswer(ids, answer) for _, ids, answer in answered]
    rows = (
        ReferenceLogprob(prompt.prompt_id, prompt.task_id, prompt.parent_id, logprob, len(answer))
        for (prompt, _, answer), logprob in zip(answered, answer_logprobs(model, adapter, given), strict=True)
    )
    settings = {"model": model.model_dump(), "lora_path": adapter, "sandbox": sandbox.model_dump()}
    records.write(output, ReferenceLogprob, rows, 0, settings, lambda: dict(counts), made_from=[prompts])


def _answered(
    domain: Domain,
    prompts: Iterator[Prompt],
    answers: Mapping[str, str],
    model: PromptedModel,
    tokenizer: Any,
    counts: Counter[str],
) -> Iterator[tuple[Prompt, list[int], list[int]]]:
    """Yield the ids of each prompt that a task's own program answers, and of what follows; equal prompts once."""
    renderer = Renderer(model.path)
    distinct: dict[tuple[str, str], Prompt] = {}
    for prompt in prompts:
        distinct.setdefault((prompt.parent_id, prompt.text), prompt)
    for prompt in distinct.values():
        if prompt.task_id not in answers or not domain.shows_task_itself(prompt):
            counts["n_without_program"] += 1
            continue
        rest = renderer.plain(rest_of_answer(answers[prompt.task_id], prompt.text, prompt.messages))
        # apart, as a sampled answer's tokens follow a prompt's
        ids, answer = (tokenizer(text, add_special_tokens=False)["input_ids"] for text in (prompt.text, rest))
        if len(ids) + len(answer) + 1 > model.window:
            counts["n_too_long"] += 1
        else:
            yield prompt, ids, [*answer, tokenizer.eos_token_id]
