"""The section `training` of refining."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from arc_refinery.config.base import (
    PROMPTS,
    ROWS,
    Name,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveInt,
    Share,
    Strict,
    check_once,
)
from arc_refinery.config.grpo import PolicyGradient
from arc_refinery.config.lora import Imitation, Lengths
from arc_refinery.config.rewards import distinct
from arc_refinery.config.training import Methods, Run
from arc_refinery.refining.config.evaluation import BROKEN
from arc_refinery.refining.config.rewards import AttemptTerm


class Demonstrations(Strict):
    targets: Literal["source", "attempts", "nearest"] = Field(
        "source",
        description="The correct program of a row: `source`: the task's own (without augmentation); "
        "`attempts`: the most frequent correct attempt on the same prompt; `nearest`: the one most like the "
        "incorrect program.",
    )


class PromptChoice(Strict):
    min_pass_rate: Share = Field(
        0.0, description="Leave out tasks where a smaller share of the first attempts is right."
    )
    max_pass_rate: Share = Field(1.0, description="Leave out tasks where a larger share of them is right.")

    @model_validator(mode="after")
    def _there_is_a_range(self) -> "PromptChoice":
        if self.min_pass_rate > self.max_pass_rate:
            raise ValueError(f"min_pass_rate = {self.min_pass_rate} is above max_pass_rate = {self.max_pass_rate}")
        return self


class Sft(Imitation):
    demonstrations: Annotated[Demonstrations, ROWS] = Field(
        default_factory=lambda: Demonstrations(), description="Demonstrations to train on."
    )


class Grpo(PolicyGradient):
    rollout: Annotated[Literal["prepared", "on-policy"], PROMPTS] = Field(
        "prepared",
        description="`prepared`: answer each prompt once; `on-policy`: answer, read the feedback, refine, up "
        "to `n_turns` answers. A solved answer ends the episode.",
    )
    n_turns: Annotated[int, PROMPTS] = Field(
        2,
        ge=2,
        le=100,
        description="For `on-policy`: answers per episode, at most. With `refinement.history: last`, of three "
        "answers or more only the last one carries loss.",
    )
    feedback: Literal["real", "twin"] = Field(
        "real",
        description="For `on-policy`: what an answer is refined with: `real`, the results of its own program, or "
        "`twin`, those of another wrong answer of its group, if any are different: the control.",
    )
    feedback_loss: NonNegativeFloat = Field(
        0.0,
        description="For `on-policy`: weight of the mean cross-entropy of the tokens between two answers, so that the "
        "model learns to predict what its programs give (ECHO, arXiv 2605.24517); logged as `loss/feedback`.",
    )
    rewards: Annotated[tuple[AttemptTerm, ...], AfterValidator(distinct)] = Field(
        (AttemptTerm(reward="solved"),),
        min_length=1,
        description="Terms whose weighted sum is the reward: each a name, or a section.",
    )
    refill: NonNegativeInt = Field(
        0,
        description="How often per step other prompts are drawn instead of those whose completions all earn "
        "the same (dynamic sampling, DAPO; docs/methods.md).",
    )
    unsloth: bool = Field(False, description="Train with Unsloth: faster and in less memory on one GPU.")
    n_processes: PositiveInt = Field(
        1,
        description="Processes that share each step, each on a GPU of its own, by `accelerate launch` "
        "(docs/methods.md). All other keys are about the whole step. `gradient_accumulation_steps` must be a multiple.",
    )

    @property
    def answers_once(self) -> bool:
        return self.rollout == "prepared"

    @property
    def trains_with_unsloth(self) -> bool:
        return self.unsloth

    @property
    def n_training_processes(self) -> int:
        return self.n_processes

    @model_validator(mode="after")
    def _feedback_is_in_completions(self) -> "Grpo":
        if self.rollout == "prepared" and self.feedback_loss:
            raise ValueError(
                "feedback_loss: prepared prompts contain their feedback, and prompts carry no loss; set rollout to "
                "`on-policy`, or feedback_loss to 0"
            )
        if self.rollout == "prepared" and self.feedback == "twin":
            raise ValueError(
                "feedback `twin`: prepared prompts have their feedback already; set rollout to `on-policy`"
            )
        return self

    @model_validator(mode="after")
    def _processes_can_share_a_step(self) -> "Grpo":
        n = self.n_processes
        if n == 1:
            return self
        if self.unsloth:
            raise ValueError(f"n_processes = {n}: Unsloth trains in one process; set unsloth to false")
        if self.refill:
            raise ValueError(f"n_processes = {n}: refill is not supported yet; set it to 0")
        if self.rollout == "on-policy":
            raise ValueError(f"n_processes = {n}: rollout `on-policy` is not supported yet; set it to `prepared`")
        if self.steps_per_generation > 1:
            raise ValueError(f"n_processes = {n}: steps_per_generation above 1 is not supported yet; set it to 1")
        if self.gradient_accumulation_steps % n:
            raise ValueError(
                f"n_processes = {n} share the passes of a step, but gradient_accumulation_steps is "
                f"{self.gradient_accumulation_steps}; set it to a multiple of {n}"
            )
        if self.n_heldout % self.prompts_per_step:
            raise ValueError(
                f"n_processes = {n}: n_heldout = {self.n_heldout} must be a multiple of prompts_per_step = "
                f"{self.prompts_per_step}, so that all answer as many held-out prompts"
            )
        return self

    @model_validator(mode="after")
    def _groups_can_be_refilled(self) -> "Grpo":
        if self.refill and self.trl.get("log_completions"):
            raise ValueError("refill: TRL would log completions beside other prompts; remove trl.log_completions")
        return self

    @model_validator(mode="after")
    def _unsloth_can(self) -> "Grpo":
        """Refuse what Unsloth's GPU trainer does not do, or silently does differently (2026.10.7 and 2026.10.9)."""
        if not self.unsloth:
            return self
        if self.sleep_mode:
            raise ValueError(
                "unsloth: its vLLM shares the trainer's weights and sleeps in another way, which is not supported yet; "
                "set sleep_mode to false"
            )
        if self.refill:
            raise ValueError("unsloth: refill is not supported yet; set it to 0")
        if self.steps_per_generation > 1:
            raise ValueError("unsloth: steps_per_generation above 1 is not supported yet; set it to 1")
        if self.feedback_loss:
            raise ValueError("unsloth: feedback_loss is not supported; set it to 0")
        if self.loss_type == "bnpo":
            raise ValueError("unsloth averages the loss `bnpo` as it does `dapo`: set loss_type to `dapo`")
        if self.loss_type in ("dapo", "cispo") and self.epsilon_high is None:
            raise ValueError(f"unsloth has its own default epsilon_high for the loss {self.loss_type}: set it")
        if self.loss_type == "dr_grpo" and self.scale_rewards == "group":
            raise ValueError(
                "unsloth does not scale rewards by group with the loss `dr_grpo`: set scale_rewards to `none` or "
                "`batch`"
            )
        if self.drop_zero_variance and not self.mask_truncated_completions:
            raise ValueError("unsloth drops completions only with mask_truncated_completions: set it to true")
        return self


class Training(Lengths, Methods):
    sets: tuple[Name, ...] = Field(
        (), description="Evaluation sets whose tasks to train on; default: the tasks of the parts."
    )
    prompts: Literal["first-turn", "second-turn"] = Field(
        "second-turn",
        description="Prompts of GRPO: answer the task (needed by `rollout: on-policy`), or refine the best "
        "incorrect attempt on it.",
    )
    answers: Literal["sampled", "broken"] = Field(
        "sampled",
        description="For `second-turn`, the attempts to refine. `broken`: instead of sampled ones, the task's own "
        "right program, each with another mutation that makes it wrong on what the prompt shows.",
    )
    prompts_per_task: PositiveInt = Field(
        1, description="For `first-turn`: prompts per task, each with its own augmentation."
    )
    select: PromptChoice | None = Field(
        None,
        description="For `second-turn`: which prompts GRPO trains on, by pass rates; default: all.",
    )
    sft: Sft | None = Field(None, description=Methods.model_fields["sft"].description)
    grpo: Grpo | None = Field(None, description=Methods.model_fields["grpo"].description)
    keep_steps: tuple[PositiveInt, ...] = Field(
        (),
        description="Steps of GRPO, multiples of `grpo.save_steps`, whose adapters can be evaluated as "
        "`trained@1000`. Does not change the final adapter.",
    )
    keep_every: PositiveInt | None = Field(
        None, description="Instead of `keep_steps`: each multiple of this before `grpo.max_steps`."
    )

    @model_validator(mode="after")
    def _methods_go_together(self) -> "Training":
        check_once("sets", self.sets)
        if self.grpo and self.grpo.rollout == "on-policy" and self.prompts != "first-turn":
            raise ValueError("rollout `on-policy` makes its own second turns: set training.prompts to `first-turn`")
        if self.select and not (self.grpo and self.prompts == "second-turn"):
            raise ValueError("select: it chooses among the second-turn prompts of GRPO; remove it, or train on these")
        if self.answers == BROKEN:
            self._check_broken()
        if self.sft and self.grpo and self.grpo.unsloth and self.grpo.beta:
            raise ValueError(
                "unsloth: its KL term compares with the model without the SFT adapter, not with the start of GRPO; set "
                "beta to 0, or unsloth to false"
            )
        return self

    def _check_broken(self) -> None:
        if self.prompts == "first-turn":
            raise ValueError("answers `broken`: first turns show no answer; set prompts to `second-turn`")
        if self.select:
            raise ValueError("answers `broken`: all are wrong, so pass rates mean nothing; remove select")
        if self.sft and self.sft.demonstrations.targets != "source":
            raise ValueError("answers `broken`: none is right; set sft.demonstrations.targets to `source`")

    @model_validator(mode="after")
    def _kept_steps_are_checkpoints(self) -> "Training":
        if self.keep_steps and self.keep_every:
            raise ValueError("keep_steps and keep_every say the same; remove one of them")
        if not self.keep_steps and not self.keep_every:
            return self
        if not self.grpo:
            raise ValueError("keep_steps and keep_every: keep adapters of GRPO; add the section `grpo`")
        for run in self._unrepeated().values():
            saved, last = run.grpo.save_steps, run.grpo.max_steps
            if self.keep_every and last < 0:
                raise ValueError("keep_every: with `epochs` alone the last step is not known; set grpo.max_steps")
            if self.keep_every and self.keep_every >= last:
                raise ValueError(
                    f"keep_every: {self.keep_every} is not before the last step, grpo.max_steps = {last}, so no step "
                    "before it would be kept; lower it or remove it"
                )
            if wrong := [step for step in self.kept_steps(run) if step % saved]:
                key = "keep_every" if self.keep_every else "keep_steps"
                raise ValueError(f"{key}: {wrong[0]} is not a multiple of grpo.save_steps = {saved}; change one")
            if last > 0 and (wrong := [step for step in self.kept_steps(run) if step >= last]):
                raise ValueError(
                    f"keep_steps: {wrong[0]} is not before the last step, grpo.max_steps = {last}, whose adapter is "
                    "kept anyway; remove it"
                )
        return self

    def kept_steps(self, run: Run) -> list[int]:
        """Steps of a GRPO training whose adapters are kept, ascending; without the last one."""
        if self.keep_every:
            return list(range(self.keep_every, run.grpo.max_steps, self.keep_every))
        return sorted(set(self.keep_steps))
