"""Requests per second and CPU time of the client of servers, against one that answers at once, as a Markdown table.

    python benchmarks/endpoint.py

Where inspect_ai is installed, its client asks the same server, in the same process; the clients take turns, and the
table has medians. CPU time is that of this process: the server is another one, on a core of its own if there is one.
"""

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version

from sandbox import machine, show

from arc_refinery.models.chat import Message
from arc_refinery.sampling.backends import Decoding, no_report
from arc_refinery.sampling.endpoint import Endpoint, Question, ask

CONNECTIONS = (1, 16, 128)
ROUNDS = 3
REPLY = json.dumps(
    {
        "id": "1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "x = 1\n" * 50}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 300, "completion_tokens": 200, "total_tokens": 500},
    }
).encode()
PROMPT = "Write a function. " * 60
Client = Callable[[str, int, int], object]  # address, number of requests, connections


async def serve() -> None:
    """Answer every request at once; the port is the first line of the output."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(REPLY)
        try:
            while True:
                request = (await reader.readuntil(b"\r\n\r\n")).lower()
                await reader.readexactly(int(request.partition(b"content-length:")[2].split()[0]))
                writer.write(head + REPLY)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def ours(address: str, n: int, connections: int) -> None:
    questions = [Question(str(number), [Message(role="user", content=PROMPT)], number) for number in range(n)]
    answers = list(ask(Endpoint(address, "m", "", connections, {}), questions, Decoding(1.0, 1.0, 256), no_report))
    assert len(answers) == n


def of_inspect(address: str, n: int, connections: int) -> None:
    from inspect_ai.model import GenerateConfig, get_model  # type: ignore[import-not-found]

    config = GenerateConfig(max_connections=connections, max_tokens=256, temperature=1.0, top_p=1.0)
    model = get_model("openai-api/local/m", base_url=address, api_key="none", config=config, memoize=False)

    async def answered() -> None:
        outputs = await asyncio.gather(*(model.generate(PROMPT) for _ in range(n)))
        assert all(output.completion for output in outputs)

    asyncio.run(answered())


def clients() -> dict[str, Client]:
    try:
        return {"arc-refinery": ours, f"inspect_ai {version('inspect_ai')}": of_inspect}
    except PackageNotFoundError:
        return {"arc-refinery": ours}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=2000, help="requests per measurement (default: %(default)s)")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        asyncio.run(serve())
        return
    rows = []
    with subprocess.Popen([sys.executable, __file__, "--serve"], stdout=subprocess.PIPE) as server:
        assert server.stdout
        address = f"http://127.0.0.1:{int(server.stdout.readline())}/v1"
        for connections in CONNECTIONS:
            measured: dict[str, list[tuple[float, float]]] = {name: [] for name in clients()}
            for _ in range(ROUNDS):
                for name, client in clients().items():
                    wall, cpu = time.perf_counter(), time.process_time()
                    client(address, arguments.requests, connections)
                    measured[name].append((time.perf_counter() - wall, time.process_time() - cpu))
            for name, times in measured.items():
                walls, cpus = zip(*times, strict=True)
                rate = arguments.requests / statistics.median(walls)
                milliseconds = 1000 * statistics.median(cpus) / arguments.requests
                rows.append([f"{connections}, {name}", f"{rate:.0f}", f"{milliseconds:.2f}"])
        server.kill()
    caption = f"{arguments.requests} requests, medians of {ROUNDS} rounds. {machine()}"
    show("Client of servers", caption, "connections, client; requests per second; CPU ms per request", rows)


if __name__ == "__main__":
    main()
