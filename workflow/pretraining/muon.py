"""Muon (Jordan et al. 2024): SGD with momentum whose update matrix is replaced by the nearest orthogonal one.

`torch.optim.Muon` computes in bfloat16, which CPUs without matrix units emulate: it took most of a training step there.
This version computes in float32 and orthogonalises all matrices of one shape at once.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)  # quintic that drives singular values towards 1 (Jordan et al. 2024)
NEWTON_SCHULZ_STEPS = 5


class Muon(torch.optim.Optimizer):
    """Muon for 2-D weights only. Updates are scaled by the learning rate times sqrt(max(1, rows / columns))."""

    def __init__(self, weights: Iterable[Tensor], lr: float, momentum: float = 0.95) -> None:
        super().__init__(weights, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> Any:
        loss = None if closure is None else closure()
        for group in self.param_groups:
            same_shape: dict[torch.Size, list[Tensor]] = defaultdict(list)
            for weight in group["params"]:
                same_shape[weight.shape].append(weight)
            for shape, weights in same_shape.items():
                updates = orthogonalized(torch.stack([self._nesterov(weight, group["momentum"]) for weight in weights]))
                rate = group["lr"] * max(1.0, shape[0] / shape[1]) ** 0.5
                for weight, update in zip(weights, updates, strict=True):
                    weight.sub_(update, alpha=rate)
        return loss

    def _nesterov(self, weight: Tensor, momentum: float) -> Tensor:
        buffer = self.state[weight].setdefault("momentum", torch.zeros_like(weight))
        assert weight.grad is not None
        buffer.lerp_(weight.grad, 1 - momentum)
        return weight.grad.lerp(buffer, momentum)


def orthogonalized(matrices: Tensor) -> Tensor:
    """Return the (n, rows, columns) matrices with all singular values near 1 (about 0.7 to 1.2)."""
    wide: Tensor = matrices if matrices.shape[1] <= matrices.shape[2] else matrices.mT
    wide = wide / (wide.norm(dim=(1, 2), keepdim=True) + 1e-7)
    a, b, c = NEWTON_SCHULZ
    for _ in range(NEWTON_SCHULZ_STEPS):
        gram = wide @ wide.mT
        wide = a * wide + (b * gram + c * gram @ gram) @ wide
    return wide if matrices.shape[1] <= matrices.shape[2] else wide.mT
