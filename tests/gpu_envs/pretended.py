"""An H100 for vLLM where there is no GPU: enough of one for its engine's configuration to be built.

vLLM's CUDA platform links against the driver, so a library with the functions that vLLM's own extensions ask of it
takes the driver's place; each of them reports that there is no device.
"""

import ctypes
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import Any

DRIVER = "libcuda.so.1"
NO_DEVICE = 100  # CUDA_ERROR_NO_DEVICE


def load_driver(folder: Path) -> None:
    """Load the driver, or what takes its place, into this process."""
    try:
        ctypes.CDLL(DRIVER)
    except OSError:
        functions = "".join(f"int {name}(void) {{ return {NO_DEVICE}; }}\n" for name in _functions())
        path = folder / DRIVER
        build = ["gcc", "-shared", "-fPIC", f"-Wl,-soname,{DRIVER}", "-x", "c", "-", "-o", str(path)]
        subprocess.run(build, input=functions, text=True, check=True)
        ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)


def _functions() -> set[str]:
    """Those of the driver (`cuMemCreate`) that vLLM's extensions need; `cuda...` are the runtime's."""
    spec = find_spec("vllm")
    assert spec is not None and spec.origin is not None
    extensions = sorted(Path(spec.origin).parent.glob("*.so"))
    listed = subprocess.run(
        ["nm", "--dynamic", "--undefined-only", "--format=just-symbols", *extensions],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    names = {line.partition("@")[0] for line in listed.splitlines()}
    return {name for name in names if name.startswith("cu") and name[2:3].isupper()}


def h100() -> Any:
    """vLLM's platform on an H100 without NVML."""
    from vllm.platforms.cuda import NonNvmlCudaPlatform
    from vllm.platforms.interface import DeviceCapability

    class H100(NonNvmlCudaPlatform):
        @classmethod
        def get_device_capability(cls, device_id: int = 0) -> Any:
            return DeviceCapability(9, 0)

        @classmethod
        def get_device_name(cls, device_id: int = 0) -> str:
            return "NVIDIA H100 80GB HBM3"

        @classmethod
        def get_device_total_memory(cls, device_id: int = 0) -> int:
            return 80 * 2**30

        @classmethod
        def device_count(cls) -> int:
            return 2

        @classmethod
        def is_fully_connected(cls, physical_device_ids: list[int]) -> bool:
            return True

        @classmethod
        def num_compute_units(cls, device_id: int = 0) -> int:
            return 132

    return H100()


def engine_config(keywords: dict[str, Any]) -> Any:
    """Return vLLM's configuration for an engine's keywords; it raises `ValueError` where it does not admit them."""
    from vllm.engine.arg_utils import EngineArgs
    from vllm.usage.usage_lib import UsageContext

    return EngineArgs(**keywords).create_engine_config(UsageContext.LLM_CLASS)
