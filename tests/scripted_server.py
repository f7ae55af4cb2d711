"""A server of chat completions on this machine that answers as a script says, and notes what it was asked.

    with serving(lambda request: reply("```python\\n..."), key="secret") as server:
        Endpoint(server.address, ...)

A script returns a reply (a dictionary), a `Fault`, or bytes to send as they are.
"""

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Fault:
    status: int = 200
    body: Any = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    is_cut: bool = False  # the connection ends in the middle of the body
    seconds_per_byte: float = 0.0
    hangs_for: float = 0.0


def reply(
    content: str | None,
    n_tokens: int = 5,
    finish_reason: str = "stop",
    thought: Mapping[str, Any] | None = None,
    **changes: Any,
) -> dict[str, Any]:
    """A completion; `thought` are further keys of the message, also `tool_calls`, `changes` of the whole reply."""
    return {
        "model": "served-model",
        "system_fingerprint": "fp_1",
        "choices": [{"message": {"content": content, **(thought or {})}, "finish_reason": finish_reason}],
        "usage": {"prompt_tokens": 60, "completion_tokens": n_tokens},
        **changes,
    }


Script = Callable[[dict[str, Any]], Any]


@dataclass
class Server:
    address: str
    asked: list[dict[str, Any]] = field(default_factory=list)  # bodies of the requests
    keys: list[str | None] = field(default_factory=list)  # their header Authorization
    n_inside: int = 0
    most_inside: int = 0


@contextmanager
def serving(script: Script, models: Sequence[str] = ()) -> Iterator[Server]:
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with lock:
                server.asked.append(body)
                server.keys.append(self.headers["Authorization"])
                server.n_inside += 1
                server.most_inside = max(server.most_inside, server.n_inside)
            try:
                self._send(script(body))
            finally:
                with lock:
                    server.n_inside -= 1

        def do_GET(self) -> None:
            self._send({"data": [{"id": name} for name in models]} if self.path.endswith("/models") else Fault(404))

        def _send(self, given: Any) -> None:
            fault = given if isinstance(given, Fault) else Fault(body=given)
            time.sleep(fault.hangs_for)
            content = fault.body if isinstance(fault.body, bytes) else json.dumps(fault.body).encode()
            self.send_response(fault.status)
            self.send_header("Content-Length", str(len(content)))
            for name, value in fault.headers.items():
                self.send_header(name, value)
            self.end_headers()
            if fault.is_cut:
                content, self.close_connection = content[: len(content) // 2], True
            pieces = [content] if not fault.seconds_per_byte else [bytes([byte]) for byte in content]
            for piece in pieces:
                self.wfile.write(piece)
                time.sleep(fault.seconds_per_byte)

        def log_message(self, *_: object) -> None:
            pass

    class Quiet(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 256

        def handle_error(self, *_: object) -> None:
            pass  # the client went away

    http = Quiet(("127.0.0.1", 0), Handler)
    server = Server(f"http://127.0.0.1:{http.server_port}/v1")
    thread = threading.Thread(target=http.serve_forever, daemon=True, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        http.shutdown()
        http.server_close()
