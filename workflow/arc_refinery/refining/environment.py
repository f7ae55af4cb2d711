"""The training environment of refining: prepared prompts of first or later turns, or on-policy turns."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from arc_refinery.config import Lengths
from arc_refinery.config.loading import domain_sources
from arc_refinery.domains.domain import Domain
from arc_refinery.files import content_hash
from arc_refinery.models.chat import ANSWERED, begin_answers, ids_after_answer
from arc_refinery.refining.config import Grpo, Refinement
from arc_refinery.refining.config.rewards import ATTEMPT_REWARDS
from arc_refinery.refining.refill import Refill, answer_once
from arc_refinery.refining.rollout import OnPolicyTurns, TrainingPrompt
from arc_refinery.refining.scoring import Scorer
from arc_refinery.sampling.library_arguments import refining_rollouts
from arc_refinery.sandbox import Executor
from arc_refinery.training.rewards import Reward
from arc_refinery.training.trainer import Rollout, Trainer, TrainingData


@dataclass(kw_only=True)
class RefineEnvironment:
    prompts: Sequence[TrainingPrompt]
    prompts_hash: str  # hash of the files of prompts
    training: Grpo
    lengths: Lengths
    domain: Domain
    wording: Any  # with the texts of the feedback between on-policy turns
    refinement: Refinement  # form of this feedback, history, and whether programs that raised are refined
    executors: tuple[Executor, ...]
    seed: int
    enable_thinking: bool | None = None  # None: as the chat template does by itself

    def __post_init__(self) -> None:
        """Raise `InputError` if a reward of the user cannot be imported."""
        self.reward = Reward(self.training.rewards, {**self.domain.program_rewards, **ATTEMPT_REWARDS})
        rows = [{"prompt": prompt.conversation, "prompt_index": index} for index, prompt in enumerate(self.prompts)]
        self.data = TrainingData.split(rows, self.training.n_heldout, self.seed)

    def identity(self) -> dict[str, Any]:
        return {
            "template": self.domain.texts(self.wording),
            **self.refinement.model_dump(include={"form", "history", "include_errors"}),
            "lengths": self.lengths.model_dump(),
            "prompts": self.prompts_hash,
            "reward": self.reward.identity(),
            **({"domain": content_hash(sources)} if (sources := domain_sources(self.domain.package)) else {}),
        }

    def arguments(self) -> dict[str, Any]:
        return refining_rollouts(self.lengths)

    @property
    def longest_completion(self) -> int:
        has_turns = self.training.rollout == "on-policy"
        return self.lengths.max_seq_length if has_turns else self.lengths.max_completion_length

    def trainer(self, tokenizer: Any, ends: list[int], **arguments: Any) -> Trainer:
        ids_after_answer(tokenizer, ends, ANSWERED)  # raises if answers would not end
        begin_answers(tokenizer, self.prompts[0].prefix, self.enable_thinking)  # all share a template
        scorer = Scorer(self.training, self.reward, self.domain, self.executors, ends, self.prompts)
        rollout: Rollout | None = None
        if self.training.rollout == "on-policy":
            rollout = OnPolicyTurns(
                domain=self.domain,
                prompts=self.prompts,
                executors=self.executors,
                wording=self.wording,
                include_errors=self.refinement.include_errors,
                n_turns=self.training.n_turns,
                feedback=self.training.feedback,
                history=self.refinement.history,
                max_tokens=self.lengths.longest_prompt,
                mask_truncated=self.training.mask_truncated_completions,
            )
        if self.training.refill:
            rollout = Refill(
                rollout=rollout or answer_once,
                scorer=scorer,
                rows=self.data.train,
                n_rounds=self.training.refill,
                group=self.training.num_generations,
                seed=self.seed,
            )
        return Trainer(self.training, scorer, rollout, self.training.feedback_loss, **arguments)
