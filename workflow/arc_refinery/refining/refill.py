"""Dynamic sampling: prompts whose completions all earn the same are replaced by others, before a step learns.

With rewards of 0 and 1 such a group has no gradient but that of the KL term. DAPO (Yu et al. 2025) samples until a
batch is full of others. Here each round draws as many prompts as there are such groups, and after some it ends:

    8 groups    rewards of 5 differ    3 prompts are drawn
    3 groups    rewards of 2 differ    they take two of the places; 1 prompt is drawn, ...
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from statistics import fmean
from typing import Any

from arc_refinery.refining.scoring import Scorer, by_term
from arc_refinery.seeding import stream

Rows = list[dict[str, Any]]  # of the data set


def answer_once(rows: Rows, trainer: Any) -> dict[str, Any]:
    """Sample one completion for each row, as TRL does without a rollout function."""
    prompt_ids, _, _ = trainer._tokenize_prompts([row["prompt"] for row in rows])
    completion_ids, logprobs = trainer._generate_single_turn(prompt_ids, None, {}, 1)
    return {"prompt_ids": prompt_ids, "completion_ids": completion_ids, "logprobs": logprobs}


@dataclass(frozen=True, slots=True, kw_only=True)
class Refill:
    """Runs a rollout, and again for other prompts."""

    rollout: Callable[[Rows, Any], dict[str, Any]]
    scorer: Scorer
    rows: Sequence[Mapping[str, Any]]  # of the training's data set
    n_rounds: int  # at most
    group: int  # completions of a prompt
    seed: int

    def __call__(self, rows: Rows, trainer: Any) -> dict[str, Any]:
        output = self._scored(rows, trainer)
        if trainer.model.training:
            self._refill(rows, output, trainer)
        return output

    def _scored(self, rows: Rows, trainer: Any) -> dict[str, Any]:
        """Return the output with `attempt` and `terms`, which spare the scorer another evaluation."""
        output = self.rollout(rows, trainer)
        texts = trainer.processing_class.batch_decode(output["completion_ids"], skip_special_tokens=True)
        with trainer.timed("reward"):
            indices = [row["prompt_index"] for row in rows]
            attempts = self.scorer.attempts(indices, texts, output["completion_ids"], output.get("episode"))
            values = self.scorer.reward.values(attempts)
        terms = [{name: values[name][index] for name in values} for index in range(len(attempts))]
        return output | {"attempt": attempts, "terms": terms}

    def _refill(self, rows: Rows, output: dict[str, Any], trainer: Any) -> None:
        """Replace groups of equal rewards in the output and, in place, their rows, which are TRL's."""
        before = {"reward": self._rewards(output), "solved": [attempt.is_solved for attempt in output["attempt"]]}
        used = {row["prompt_index"] for row in rows}
        equal, n_drawn, n_tokens = self._equal_groups(output), 0, _tokens(output)
        for number in range(self.n_rounds):
            drawn = self._draw(len(equal), used, trainer.state.global_step, number)
            if not drawn:
                break
            used |= {row["prompt_index"] for row in drawn}
            n_drawn += len(drawn)
            others = [dict(row) for row in drawn for _ in range(self.group)]  # TRL adds keys to each
            more = self._scored(others, trainer)
            n_tokens += _tokens(more)
            differing = sorted({*range(len(drawn))} - {*self._equal_groups(more)})
            for place, source in zip(equal, differing, strict=False):
                old, new = (slice(at * self.group, (at + 1) * self.group) for at in (place, source))
                rows[old] = others[new]
                for name, values in output.items():
                    if values is not None:
                        values[old] = more[name][new]
            equal = equal[len(differing) :]
        trainer.state.num_input_tokens_seen += n_tokens - _tokens(output)  # TRL adds those of the output
        means = {f"{name}_before": fmean(values) for name, values in before.items()}
        for name, value in {"prompts": n_drawn, "equal_groups": len(equal), **means}.items():
            trainer._metrics["train"][f"refill/{name}"].append(float(value))

    def _draw(self, n: int, used: set[int], step: int, number: int) -> list[Mapping[str, Any]]:
        """Return `n` rows at random, or fewer if there are not so many that are not `used`."""
        order = stream(self.seed, "refill", step, number).permutation(len(self.rows)).tolist()
        unused = (row for index in order if (row := self.rows[index])["prompt_index"] not in used)
        return list(islice(unused, n))

    def _rewards(self, output: Mapping[str, Any]) -> list[float]:
        return self.scorer.rewards(by_term(output["terms"]))

    def _equal_groups(self, output: Mapping[str, Any]) -> list[int]:
        """Return the numbers of the groups whose completions all earn the same."""
        rewards = self._rewards(output)
        return [
            start // self.group
            for start in range(0, len(rewards), self.group)
            if len({*rewards[start : start + self.group]}) == 1
        ]


def _tokens(output: Mapping[str, Any]) -> int:
    """Return the number of tokens read and sampled, as TRL counts them."""
    sampled = map(sum, output["env_mask"]) if "env_mask" in output else map(len, output["completion_ids"])
    return sum(map(len, output["prompt_ids"])) + sum(sampled)
