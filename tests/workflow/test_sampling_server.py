"""The sampler's server with vLLM's CPU build. Skipped where vLLM is not installed.

Not shown, because it takes NCCL and two GPUs: that the server takes new weights.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import psutil
import pytest
from checkout import TINY
from vllm_cpu import FOLDER, environment, needs_vllm

from arc_refinery.config import ModelConfig
from arc_refinery.errors import InputError
from arc_refinery.refining.domains.arc.config import Grpo
from arc_refinery.training import vllm_backend

MODEL = ModelConfig(path=TINY, window=256, dtype="float32")
TRAINING = Grpo(learning_rate=1e-4, sampler="vllm-server")


def put_vllm_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The CPU build has the distribution name `vllm-cpu`, but its server asks for the version of `vllm`."""
    named = tmp_path / "names" / "vllm-0.31.0+cpu.dist-info"
    named.mkdir(parents=True)
    (named / "METADATA").write_text("Metadata-Version: 2.1\nName: vllm\nVersion: 0.31.0+cpu\n")
    for name, value in environment(PYTHONPATH=f"{FOLDER}{os.pathsep}{named.parent}").items():
        monkeypatch.setenv(name, value)


def own_children() -> list[psutil.Process]:
    """Those with vLLM, but for the server of other tests (processes.py)."""
    started = [(process, " ".join(process.cmdline())) for process in psutil.Process().children(recursive=True)]
    return [process for process, words in started if "vllm" in words and "processes.py" not in words]


@pytest.mark.model
@needs_vllm
def test_it_answers_inside_the_context_and_is_gone_with_its_engine_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    put_vllm_on_the_path(tmp_path, monkeypatch)
    output = tmp_path / "logs" / "trained.log.server"
    with vllm_backend.open_server(MODEL, TRAINING, [], output) as address:
        assert address.keys() == {"vllm_server_base_url", "vllm_group_port"}
        question = {"model": TINY, "prompt": [1, 2, 3], "max_tokens": 4, "ignore_eos": True}
        request = Request(
            f"{address['vllm_server_base_url']}/v1/completions",
            json.dumps(question).encode(),
            {"Content-Type": "application/json"},
        )
        with urlopen(request, timeout=120) as answer:
            assert json.load(answer)["usage"]["completion_tokens"] == 4
        with urlopen(f"{address['vllm_server_base_url']}/server_info?config_format=json", timeout=60) as answer:
            assert json.load(answer)["vllm_config"]["weight_transfer_config"]["backend"] == "nccl"  # what TRL asks for
        assert own_children()
    assert not own_children()
    assert "Application startup complete" in output.read_text()


@pytest.mark.model
@needs_vllm
def test_one_that_cannot_start_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    put_vllm_on_the_path(tmp_path, monkeypatch)
    missing = MODEL.model_copy(update={"path": str(tmp_path / "no-model")})
    output = tmp_path / "server"
    with pytest.raises(InputError) as refusal, vllm_backend.open_server(missing, TRAINING, [], output):
        pass
    assert f"vLLM's server ended with the exit status 1; the end of {output}:" in str(refusal.value)
    assert "no-model" in str(refusal.value)


SERVER = """
import http.server, sys
class Healthy(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers()
print("CUDA out of memory", flush=True)
server = http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Healthy)
server.handle_request()
sys.exit(3)
"""


def stand_in(program: str, monkeypatch: pytest.MonkeyPatch) -> "list[subprocess.Popen[bytes]]":
    """Run this program as the server; its process is in the list once it is started."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*arguments: Any, **keywords: Any) -> "subprocess.Popen[bytes]":
        started.append(popen(*arguments, **keywords))
        return started[-1]

    popen = subprocess.Popen
    command = "arc_refinery.sampling.library_arguments.server_command"
    monkeypatch.setattr(command, lambda _model, _training, port: [sys.executable, "-c", program, str(port)])
    monkeypatch.setattr("arc_refinery.training.vllm_backend.subprocess.Popen", start)
    return started


def test_a_server_that_ends_in_the_middle_is_named_as_the_cause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A stand-in that is healthy once, and then ends as one does that runs out of memory."""
    started = stand_in(SERVER, monkeypatch)
    with (
        pytest.raises(InputError, match=r"exit status 3; the end of .*:\nCUDA out of memory") as refusal,
        vllm_backend.open_server(MODEL, TRAINING, [], tmp_path / "server"),
    ):
        os.waitid(os.P_PID, started[0].pid, os.WEXITED | os.WNOWAIT)  # its exit status stays to be read
        raise ConnectionError("refused")
    assert isinstance(refusal.value.__cause__, ConnectionError)


def test_what_fails_beside_a_healthy_server_keeps_its_own_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    started = stand_in(SERVER.replace("handle_request", "serve_forever"), monkeypatch)
    with (
        pytest.raises(ZeroDivisionError),
        vllm_backend.open_server(MODEL, TRAINING, ["5", "7"], tmp_path / "server"),
    ):
        child = psutil.Process(started[0].pid)
        assert child.environ()["CUDA_VISIBLE_DEVICES"] == "5,7"
        raise ZeroDivisionError
    assert not child.is_running()
