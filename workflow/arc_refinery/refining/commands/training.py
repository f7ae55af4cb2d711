"""The command that trains with GRPO on prompts."""

import logging
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from arc_refinery import config
from arc_refinery.commands.flags import MODEL, GrpoFlags, RuleFiles
from arc_refinery.config import GRADING
from arc_refinery.config.flags import FLAT, NEEDED, Without
from arc_refinery.errors import InputError, NoRoomError
from arc_refinery.files import content_hash
from arc_refinery.refining.commands.domain import DomainFlags
from arc_refinery.refining.config import Grpo, History
from arc_refinery.training.job import train

if TYPE_CHECKING:
    from arc_refinery.records import Prompt
    from arc_refinery.refining.domain import Domain
    from arc_refinery.refining.environment import RefineEnvironment


class Train(DomainFlags, GrpoFlags):
    r"""Train a LoRA adapter with GRPO on prompts, or with --kind tool-use on questions; an interrupted run resumes.

    Defaults are those of the published scripts, whose names of flags work, too. In an experiment, a key that is left
    out has the default of config/README.md, which may be another one (docs/methods.md).

    Examples:
        arc-refinery train --dataset-path mine/turn2/prompts.parquet --model-path workflow/models/tiny \
            --template compact --max-seq-length 1024 --max-completion-length 48 --max-steps 4 --output mine/trained
        arc-refinery train --kind tool-use --help
    """

    dataset_path: RuleFiles = NEEDED  # prompts
    model_path: config.Line = Field(description=MODEL)
    training: Annotated[Grpo, FLAT]
    lengths: Annotated[config.Lengths, FLAT]
    template: config.LineOrNone = ""  # wording of prompts and feedback; default: the domain's own
    form: config.LineOrNone = ""  # form of that feedback; default: the domain's first one
    include_errors: bool = False  # on-policy: also refine programs that raised an exception
    history: History = "whole"  # on-policy: earlier answers in the conversation: all, or only the last one
    sandbox: Annotated[config.Sandbox, FLAT, Without(GRADING)] = config.Sandbox()

    def wording(self, domain: "Domain") -> Any:
        """Load the texts of feedback."""
        return domain.wording(self.template, self.form)

    def prompts_in(self, path: Path) -> "Iterator[Prompt]":
        from arc_refinery import records

        return records.read(path, self.loaded().prompt_class)

    def run(self) -> None:
        train(self.job(self.training, self.lengths.max_seq_length, self.sandbox), self._environment)

    def _environment(self) -> "Iterator[RefineEnvironment]":
        from arc_refinery.refining.environment import RefineEnvironment
        from arc_refinery.refining.rollout import TrainingPrompt

        domain, prompts_hash = self.loaded(), content_hash(self.dataset_path)
        wording = self.wording(domain)
        prompts = [TrainingPrompt.of(domain, prompt) for prompt in self._fitting_prompts()]
        with domain.executors(self.sandbox, self.training.n_jobs) as executors:
            yield RefineEnvironment(
                prompts=prompts,
                prompts_hash=prompts_hash,
                training=self.training,
                lengths=self.lengths,
                domain=domain,
                wording=wording,
                form=self.form or "",
                include_errors=self.include_errors,
                history=self.history,
                executors=executors,
                seed=self.seed,
            )

    def _fitting_prompts(self) -> "Iterator[Prompt]":
        from arc_refinery import records
        from arc_refinery.refining.pass_rates import nothing_selected
        from arc_refinery.refining.prompt_files import MAKE_ROOM, STATUSES, nothing_to_refine

        too_long: list[int] = []
        n_fitting = 0
        prompts = ((path, prompt) for path in self.dataset_path for prompt in self.prompts_in(path))
        for _, prompt in records.distinct(prompts):
            if prompt.n_tokens <= self.lengths.longest_prompt:
                n_fitting += 1
                yield prompt
            else:
                too_long.append(prompt.n_tokens)
        logging.info("%d prompts leave no room for an answer and were left out", len(too_long))
        if n_fitting:
            return
        files = " ".join(map(str, self.dataset_path))
        if too_long:
            window, answer = self.lengths.max_seq_length, self.lengths.max_completion_length
            raise NoRoomError(files, len(too_long), too_long, window, answer, MAKE_ROOM)
        statuses: Counter[str] = Counter()
        counts: Counter[str] = Counter()
        for path in (path for path in self.dataset_path if path.suffix == ".parquet"):
            notes = records.notes(path)
            statuses.update(notes.get(STATUSES, {}))
            counts.update({name: value for name, value in notes.items() if isinstance(value, int)})
        why = nothing_selected(counts) or nothing_to_refine(statuses)
        raise InputError(f"{files}: there are no training prompts: {why}")
