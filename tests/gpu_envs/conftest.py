"""Skips these tests outside the environments for GPUs; gives them a pretended H100."""

import os
from importlib.util import find_spec
from pathlib import Path

import pytest

HERE = Path(__file__).parent

# before vLLM is imported
os.environ.update(HF_HUB_OFFLINE="1", VLLM_LOGGING_LEVEL="ERROR", VLLM_NO_USAGE_STATS="1")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if find_spec("vllm") is None:
        skip = pytest.mark.skip(reason="these need an environment for GPUs: run `make check-gpu-envs`")
        for item in items:
            if HERE in item.path.parents:
                item.add_marker(skip)


@pytest.fixture(scope="session", autouse=True)
def h100(tmp_path_factory: pytest.TempPathFactory) -> None:
    """vLLM's platform is a pretended H100, which modules of vLLM keep that are imported from now on."""
    import vllm.platforms
    from gpu_envs import pretended

    pretended.load_driver(tmp_path_factory.mktemp("driver"))
    vllm.platforms._current_platform = pretended.h100()
