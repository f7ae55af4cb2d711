"""The device that a check runs on, and the line that it prints."""

from collections.abc import Callable

import pytest

Verdict = Callable[[str, bool], None]


@pytest.fixture(params=["cpu", "cuda"])
def device(request: pytest.FixtureRequest) -> str:
    """A CPU, at a tiny size, and a GPU."""
    name: str = request.param
    if name == "cuda":
        import torch

        if not torch.cuda.is_available():
            pytest.skip("needs a GPU, and torch finds none here (tests/gpu/README.md)")
    return name


@pytest.fixture
def verdict(request: pytest.FixtureRequest) -> Verdict:
    """Prints what was measured, and fails unless it is right."""

    def give(measured: str, is_right: bool) -> None:
        print(f"\n{request.node.name}: {measured}: {'right' if is_right else 'WRONG'}")
        assert is_right, measured

    return give
