"""The smallest training environment: the reward is the share of the letter e in a completion."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from arc_refinery.config import PolicyGradient
from arc_refinery.training.rewards import Scored, ScoredCompletion, step_metrics
from arc_refinery.training.trainer import Trainer, TrainingData

MAX_TOKENS = 16


class Letters:
    longest_completion = MAX_TOKENS

    def __init__(self, words: Sequence[str], training: PolicyGradient, seed: int) -> None:
        self.words = words
        self.training = training
        rows = [{"prompt": [{"role": "user", "content": word}]} for word in words]
        self.data = TrainingData.split(rows, training.n_heldout, seed)

    def identity(self) -> dict[str, Any]:
        return {"words": list(self.words)}

    def arguments(self) -> dict[str, Any]:
        return {"max_completion_length": MAX_TOKENS}

    def trainer(self, tokenizer: Any, ends: list[int], **arguments: Any) -> Trainer:
        return Trainer(self.training, Reward(self.training.num_generations, ends), **arguments)


@dataclass
class Reward:
    """The share of the letter e in a completion."""

    num_generations: int
    ends: Sequence[int]
    executors = ()
    name = "letters"

    def __call__(
        self,
        completions: Sequence[list[dict[str, str]]],
        completion_ids: Sequence[list[int]],
        log_metric: Callable[[str, float], None],
        **_: Any,
    ) -> Scored:
        texts = [completion[0]["content"] for completion in completions]
        rewards = [text.count("e") / max(1, len(text)) for text in texts]
        scored = [
            ScoredCompletion(ids, ids[-1] not in self.ends, reward, "", reward == 1.0)
            for ids, reward in zip(completion_ids, rewards, strict=True)
        ]
        for name, value in step_metrics(scored, self.num_generations).items():
            log_metric(name, value)
        return Scored(scored)
