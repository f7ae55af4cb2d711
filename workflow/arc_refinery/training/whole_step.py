"""Sampling in several processes as in one: a completion does not depend on the process that samples it.

When transformers samples, all processes have one random state. Each draws the numbers for the rows of all of them, as
one process would that had all rows, and uses those for its own:

    rows of the step    0 1 2 3                one process: torch.multinomial of 4 rows
    rows of process 1       2 3                draws for 4 rows, uses the last 2

Replaced are `torch.multinomial` or, with a large vocabulary, `torch.rand`, one of which sampling calls once per token,
and `torch.randperm`, with which TRL draws the order of a step's completions. A vLLM in each process draws from the
random state of that process, so these differ: else all would sample the same completions.
"""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from arc_refinery.training import processes

if TYPE_CHECKING:
    from transformers import Trainer as Base
else:
    Base = object


class WholeStepDraws(TorchFunctionMode):
    """In this context, these functions draw for the rows of all processes. Each process has as many rows."""

    def __init__(self, index: int, n_processes: int) -> None:
        super().__init__()
        self.index = index
        self.n_processes = n_processes
        self.n_drawn = 0  # tokens since `catch_up`
        self._again: Callable[[], Tensor]  # draws as for the last token

    def __torch_function__(
        self, function: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if function is torch.multinomial:
            return self._tokens(*args, **kwargs)
        if function is torch.rand:
            return self._places(*args, **kwargs)
        if function is torch.randperm:
            return self._order(*args, **kwargs)
        return function(*args, **kwargs)

    def _tokens(self, probabilities: Tensor, num_samples: int) -> Tensor:
        n_rows = len(probabilities)
        own = slice(self.index * n_rows, (self.index + 1) * n_rows)
        whole = probabilities.new_ones(self.n_processes * n_rows, probabilities.shape[1])  # others' are not known
        whole[own] = probabilities
        self.n_drawn += 1
        self._again = partial(torch.multinomial, probabilities, num_samples)
        return torch.multinomial(whole, num_samples)[own]

    def _places(self, n_rows: int, **named: Any) -> Tensor:
        self.n_drawn += 1
        self._again = partial(torch.rand, n_rows, **named)
        return torch.rand(self.n_processes * n_rows, **named)[self.index * n_rows :][:n_rows]

    def _order(self, n_rows: int) -> Tensor:
        whole = torch.randperm(self.n_processes * n_rows) - self.index * n_rows
        return whole[(whole >= 0) & (whole < n_rows)]

    def catch_up(self, n_drawn: int) -> None:
        """Draw and forget, up to `n_drawn` tokens: another process had a longer completion. Call it in the context."""
        while self.n_drawn < n_drawn:
            self._again()
        self.n_drawn = 0


class SharesSteps(Base):
    """A GRPO trainer whose processes do together what one does alone. Inherit from it before the trainer's class."""

    use_vllm: bool  # TRL's

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        draws = processes.count() > 1 and not self.use_vllm
        self._draws = WholeStepDraws(processes.index(), processes.count()) if draws else None
        if self._draws:
            processes.share_random_state()  # TRL gives each process a seed of its own
        if processes.count() > 1:
            # Now, because an evaluation before the first step would prepare the network as it is. Accelerate would
            # then not wrap it, and each process would keep its own gradients, without an error.
            self.model_wrapped = self.accelerator.prepare(self.model)

    def get_train_dataloader(self) -> Any:
        """Let the order of prompts follow the epoch also in an epoch that is resumed.

        Then a sampler that skips batches is around accelerate's, and `set_epoch` reaches no further than that one.
        """
        loader = super().get_train_dataloader()
        if processes.count() > 1:
            loader.batch_sampler.set_epoch = loader.batch_sampler.batch_sampler.sampler.set_epoch
        return loader

    def _prepare_inputs(self, *arguments: Any, **named: Any) -> Any:
        with self._draws or nullcontext():
            return super()._prepare_inputs(*arguments, **named)

    def _generate_single_turn(self, *arguments: Any, **named: Any) -> Any:
        sampled = super()._generate_single_turn(*arguments, **named)
        if self._draws:
            self._draws.catch_up(max(processes.gather([self._draws.n_drawn])))
        return sampled

    def _save_rng_state(self, output_dir: str) -> None:
        if processes.is_first():
            super()._save_rng_state(output_dir)

    def _load_rng_state(self, checkpoint: str | None) -> None:
        super()._load_rng_state(checkpoint)
        if checkpoint is not None and self._draws:
            processes.share_random_state()
