"""vLLM as the sampler of a training: in the trainer's process, or a server beside it, on GPUs of its own.

The training job starts and ends the server, with the command that TRL's trainers expect (`trl.scripts.vllm_serve`). Its
output goes to a file of its own.
"""

import logging
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

from arc_refinery.config import ModelConfig, PolicyGradient
from arc_refinery.errors import InputError
from arc_refinery.sampling import library_arguments
from arc_refinery.sampling.gpus import VARIABLE, set_vllm_variables, without_growing_segments
from arc_refinery.sampling.vllm_sampler import supported_rank
from arc_refinery.training.job import TrainingJob

STARTING_SECONDS = 1800.0  # reading the weights of an 8B model over a network takes minutes
ENDING_SECONDS = 30.0
SHOWN_LINES = 15  # lines of its output in an error

logger = logging.getLogger(__name__)


@contextmanager
def open_sampler(job: TrainingJob) -> Iterator[dict[str, Any]]:
    """Prepare the vLLM that samples, if one does, before TRL's trainer opens it; yield keywords of `trl.GRPOConfig`."""
    training = job.training
    if training.sampler == "vllm-colocate":
        # TRL takes port 29500 if it looks free: of two runs starting on one machine, the second would crash.
        (port,) = free_ports(1)
        os.environ.setdefault("MASTER_PORT", str(port))
    if training.opens_vllm:
        from arc_refinery.training import colocated

        rank = supported_rank(job.lora.lora_r)
        colocated.open_with(library_arguments.vllm_colocated(job.model.dtype, rank, training.kv_cache_gb))
    if training.n_server_gpus:
        with open_server(job.model, training, job.sampler_gpus, job.tensorboard.with_suffix(".server")) as address:
            yield address
    else:
        yield {}


@contextmanager
def open_server(
    model: ModelConfig, training: PolicyGradient, gpus: Sequence[str], output: Path
) -> Iterator[dict[str, Any]]:
    """Run vLLM's server on these GPUs inside the context; yield the keywords of `trl.GRPOConfig` with its address."""
    set_vllm_variables()
    port, group_port = free_ports(2)
    url = f"http://127.0.0.1:{port}"
    variables = {"VLLM_SERVER_DEV_MODE": "1", VARIABLE: ",".join(gpus)}
    output.parent.mkdir(parents=True, exist_ok=True)
    with output.open("w") as file:
        server = subprocess.Popen(
            library_arguments.server_command(model, training, port),
            stdout=file,
            stderr=subprocess.STDOUT,
            env=without_growing_segments() | variables,
        )
    try:
        _wait_until_healthy(server, url, output)
        logger.info("vLLM's server answers at %s, on %s; its output: %s", url, ", ".join(gpus) or "the CPU", output)
        try:
            yield {"vllm_server_base_url": url, "vllm_group_port": group_port}
        except Exception as error:
            if server.poll() is not None:  # whatever failed, failed because of this
                raise InputError(_message(server, output)) from error
            raise
    finally:
        _end(server)


def _wait_until_healthy(server: "subprocess.Popen[bytes]", url: str, output: Path) -> None:
    last = time.monotonic() + STARTING_SECONDS
    while time.monotonic() < last:
        if server.poll() is not None:
            raise InputError(_message(server, output))
        with suppress(URLError, ConnectionError, TimeoutError), urlopen(f"{url}/health", timeout=10) as answer:
            if answer.status == 200:
                return
        time.sleep(1)
    raise InputError(
        f"vLLM's server does not answer after {STARTING_SECONDS:.0f} s; the end of {output}:\n{_tail(output)}"
    )


def _message(server: "subprocess.Popen[bytes]", output: Path) -> str:
    return f"vLLM's server ended with the exit status {server.returncode}; the end of {output}:\n{_tail(output)}"


def _tail(output: Path) -> str:
    return "\n".join(output.read_text(errors="replace").splitlines()[-SHOWN_LINES:])


def _end(server: "subprocess.Popen[bytes]") -> None:
    """End the server and its engines, which would keep the GPUs."""
    import psutil

    with suppress(psutil.NoSuchProcess):
        engines = psutil.Process(server.pid).children(recursive=True)
        server.send_signal(signal.SIGTERM)
        _, alive = psutil.wait_procs([psutil.Process(server.pid), *engines], ENDING_SECONDS)
        for process in alive:
            process.kill()
    server.wait()


def free_ports(n: int) -> list[int]:
    """Return ports that nothing listens on now."""
    probes = [socket.socket() for _ in range(n)]
    for probe in probes:
        probe.bind(("127.0.0.1", 0))
    ports = [int(probe.getsockname()[1]) for probe in probes]
    for probe in probes:
        probe.close()
    return ports
