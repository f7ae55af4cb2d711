"""The command that trains with GRPO. Its flags keep the names of the published scripts."""

import logging
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from arc_refinery import config
from arc_refinery.commands.flags import MODEL, PUBLISHED_MODEL, GrpoFlags, RuleFiles
from arc_refinery.config import GRADING
from arc_refinery.config.flags import FLAT, NEEDED, Without
from arc_refinery.errors import InputError, NoRoomError
from arc_refinery.files import content_hash
from arc_refinery.refining.config import AttemptTerm, Grpo, Sampling, TestInputs
from arc_refinery.refining.prompts import FeedbackForm
from arc_refinery.training.launch import train

if TYPE_CHECKING:
    from arc_refinery.records import Prompt
    from arc_refinery.refining.environment import RefineEnvironment


def _published_grpo() -> Grpo:
    """Return the defaults of the published scripts, and of the libraries that they ran with (docs/methods.md)."""
    return Grpo(
        learning_rate=1e-5,
        warmup_ratio=0.1,
        weight_decay=0.01,
        max_grad_norm=0.1,
        epochs=10,
        save_steps=100,
        rewards=(AttemptTerm(reward="arc-v1"),),
        loss_type="bnpo",
        beta=0.001,
        scale_rewards="group",
        repetition_penalty=1.0,
        num_generations=4,
        gradient_accumulation_steps=1,
        importance_sampling_correction=False,
    )


class Train(GrpoFlags):
    r"""Train a LoRA adapter with GRPO on prompts, or with --kind tool-use on questions; an interrupted run resumes.

    Defaults are those of the published scripts, whose names of flags work, too. In an experiment, a key that is left
    out has the default of config/README.md, which may be another one (docs/methods.md).

    Examples:
        arc-refinery train --dataset-path mine/turn2/prompts.parquet --model-path workflow/models/tiny \
            --template compact --max-seq-length 1024 --max-completion-length 48 --max-steps 4 --output mine/trained
        arc-refinery train --kind tool-use --help
    """

    dataset_path: RuleFiles = NEEDED  # prompts; tasks, whose first-turn prompts are made; or refine_dataset.json.gz
    model_path: config.Line = Field(PUBLISHED_MODEL, description=MODEL)
    lora: Annotated[config.Lora, FLAT] = Field(default_factory=lambda: config.Lora(lora_r=16))
    training: Annotated[Grpo, FLAT] = Field(default_factory=_published_grpo)
    lengths: Annotated[config.Lengths, FLAT] = Field(
        default_factory=lambda: config.Lengths(max_completion_length=1024, max_seq_length=2048)
    )
    use_data_augmentation: bool = True  # for tasks: give each prompt its own symmetry and coloring
    test_inputs: TestInputs = "one"  # for tasks: test inputs that a prompt shows; `one` is drawn at random
    template: config.Line = "words"  # wording of prompts and feedback: compact, words, or a learned folder
    colors: tuple[str, ...] | None = None  # ten words for the colors 0 to 9 in them
    form: FeedbackForm = "given"  # form of that feedback
    include_errors: bool = False  # on-policy: also refine programs that raised an exception
    sandbox: Annotated[config.Sandbox, FLAT, Without(GRADING)] = config.Sandbox()

    def run(self) -> None:
        train(self.job(self.training, self.lengths.max_seq_length, self.sandbox), self._environment)

    def _environment(self) -> "Iterator[RefineEnvironment]":
        from arc_refinery.refining.environment import RefineEnvironment
        from arc_refinery.refining.prompts import load_template
        from arc_refinery.refining.rollout import TrainingPrompt

        prompts_hash, template = content_hash(self.dataset_path), load_template(self.template, self.colors, self.form)
        prompts = [TrainingPrompt.of(prompt) for prompt in self._fitting_prompts()]
        with self.sandbox.executor(self.training.n_jobs) as executor:
            yield RefineEnvironment(
                prompts=prompts,
                prompts_hash=prompts_hash,
                training=self.training,
                lengths=self.lengths,
                template=template,
                include_errors=self.include_errors,
                executor=executor,
                seed=self.seed,
            )

    def _fitting_prompts(self) -> "Iterator[Prompt]":
        from arc_refinery import records
        from arc_refinery.refining.prompt_files import MAKE_ROOM, STATUSES, nothing_to_refine, prompts_in

        sampling = Sampling(
            n_predictions=1,
            batch_size=1,
            use_data_augmentation=self.use_data_augmentation,
            test_inputs=self.test_inputs,
            max_output_tokens=self.lengths.max_completion_length,
        )
        too_long: list[int] = []
        n_fitting = 0

        prompts = (
            (path, prompt)
            for path in self.dataset_path
            for prompt in prompts_in(path, sampling, self.template, self.colors, self.model_path, self.seed)
        )
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
        for path in (path for path in self.dataset_path if path.suffix not in (".json", ".gz")):
            statuses.update(records.notes(path).get(STATUSES, {}))
        raise InputError(f"{files}: there are no training prompts: {nothing_to_refine(statuses)}")
