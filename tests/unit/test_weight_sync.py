"""The check before the first step that vLLM samples with the trained weights."""

from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from arc_refinery.training import weight_sync  # noqa: E402


def test_the_adapter_moves_no_further_than_needed():
    """Far away, two libraries in 16 bits differ by nats, and a sampler that follows would be refused."""
    adapter = {"lora_B": torch.zeros(64, 64)}

    def logprobs(*_: Any, logits_to_keep: int) -> Any:
        return torch.full((1, logits_to_keep), -(adapter["lora_B"].norm().item() ** 3)), None, None

    trainer = SimpleNamespace(
        model=None, accelerator=SimpleNamespace(device="cpu"), _get_per_token_logps_and_entropies=logprobs
    )
    weight_sync._move(trainer, adapter, {"lora_B": torch.zeros(64, 64)}, [1, 2], [3, 4, 5])
    assert weight_sync.SHIFT < adapter["lora_B"].norm().item() ** 3 < 2 * weight_sync.SHIFT
