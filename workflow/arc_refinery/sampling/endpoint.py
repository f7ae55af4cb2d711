"""A model behind an address: messages in, text out, over the protocol of OpenAI's chat completions.

POST <address>/chat/completions
    {"model": "qwen", "messages": [...], "max_tokens": 512, "temperature": 1.0, "top_p": 0.95, "seed": 7}
    {"choices": [{"message": {"content": "def f(x): ..."}, "finish_reason": "stop"}],
     "usage": {"prompt_tokens": 60, "completion_tokens": 42}, "model": "qwen", "system_fingerprint": "fp_1"}

Each request asks for one completion: with `n`, `usage` counts the tokens of all together, and ollama ignores it. A
server that is busy, fails or drops a connection is asked again, later and with fewer requests at a time; what it
refuses ends the job, with its own words.
Answers cannot be repeated byte by byte: servers compute whatever came together in one batch, and change.
"""

import asyncio
import logging
import math
import os
import re
import socket
import time
from collections.abc import AsyncIterator, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import httpx
from pydantic import BaseModel, Field, NonNegativeInt, ValidationError
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from arc_refinery import records
from arc_refinery.config import ModelConfig
from arc_refinery.config.base import ADDRESS
from arc_refinery.config.sampling import Prices
from arc_refinery.errors import InputError
from arc_refinery.models.chat import Message
from arc_refinery.programs import after_thought
from arc_refinery.records import TOO_LONG
from arc_refinery.sampling.backends import Decoding, Report
from arc_refinery.sampling.shard import entries_of

ADDRESS_VARIABLE = "OPENAI_BASE_URL"
CONNECT_SECONDS = 30.0
ANSWER_SECONDS = 3600.0  # without a byte: an answer may be long, and asking for it again doubles the server's work
N_TRIES = 20  # at most, of one request
FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS = 1.0, 60.0
# a connection whose other end is gone is noticed within three minutes, however long an answer may take
KEEP_ALIVE = [
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 20),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 6),
]
_TOO_LONG = re.compile(
    r"context_length_exceeded|exceed_context_size|context (length|size|window)|prompt is too long", re.I
)
KEPT = "What was answered is kept: run the same command again when the server works"
_NO_CREDIT = "insufficient_quota"  # comes with 429, but waiting does not help

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Allowance:
    """Tokens that a run may still read and write: `model.max_tokens_total` less those of its answers so far."""

    total: float = math.inf
    left: float = math.inf


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a model answers; `key` is in no text that is written."""

    address: str
    model: str
    key: str = field(repr=False)
    max_connections: int
    extra_body: Mapping[str, Any]
    prices: Prices | None = None
    n_tries: int = N_TRIES
    allowance: Allowance = field(default_factory=Allowance)

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.key}"} if self.key else {}

    @classmethod
    def of(cls, model: ModelConfig, run: Path | None = None) -> "Endpoint":
        """Read address and key from the environment where the config does not name them.

        `run` is the folder with the answers of a run so far.
        """
        address = model.address or os.environ.get(ADDRESS_VARIABLE, "")
        if not re.fullmatch(ADDRESS, address):
            fault = "not a URL without a user" if address else "not set"
            raise InputError(
                f"model.address is empty, and {ADDRESS_VARIABLE} is {fault}; expected the URL of a server in one of "
                "them, http://localhost:8000/v1"
            )
        key = os.environ.get(model.key_variable, "").strip()
        endpoint = cls(address.rstrip("/"), model.path, key, model.max_connections, model.extra_body, model.prices)
        if (total := model.max_tokens_total) and run:
            endpoint.allowance.total, endpoint.allowance.left = total, total - _n_tokens_used(run)
        return endpoint


def without_thoughts(messages: Sequence[Message]) -> list[Message]:
    """Return a conversation as servers with a reasoning parser expect it: thoughts are not part of earlier answers."""
    return [
        Message(role="assistant", content=after_thought(message["content"]).lstrip("\n"))
        if message["role"] == "assistant"
        else message
        for message in messages
    ]


@dataclass(frozen=True, slots=True)
class Question:
    question_id: str
    messages: Sequence[Message | Mapping[str, Any]]
    seed: int
    more: Mapping[str, Any] = field(default_factory=dict)  # keys of this request, such as `tools`
    task_id: str = ""
    turn: int = 1
    number: int = 0  # of the attempts at the task in this turn


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer; empty, with the reason `too_long`, if the server has no room for the prompt and an answer."""

    message: Mapping[str, Any]  # as the server gave it: content, thought, calls of tools
    n_prompt_tokens: int
    n_tokens: int  # including those of a thought
    finish_reason: str  # "stop", "length" if it was cut, TOO_LONG, or what else the server says
    address: str
    model: str
    fingerprint: str
    logprob: float | None = None  # of its tokens, if `extra_body` asks for them (`logprobs: true`)

    @property
    def text(self) -> str:
        """A thought in <think> tags, then the answer."""
        content: str = self.message.get("content", "")
        thought: str = self.message.get("reasoning_content") or self.message.get("reasoning", "")
        if not thought:
            return content
        is_closed = content or "tool_calls" in self.message
        return f"<think>\n{thought.strip()}" + (f"\n</think>\n\n{content}" if is_closed else "")


def served_by(answers: Iterable[Mapping[str, Any]]) -> list[list[Any]]:
    """Return who gave answers, as the note `served_by` says it; each is the dictionary of an `Answer`."""
    names = ("address", "model", "fingerprint"), ("n_prompt_tokens", "n_tokens")
    return records.by_server(
        [*(answer[name] for name in names[0]), 1, *(answer[name] for name in names[1])] for answer in answers
    )


def _n_tokens_used(run: Path) -> int:
    """Return the tokens of all answers in a run's folder: of finished files, and of jobs that were interrupted."""
    shards = (path for path in run.rglob("[0-9][0-9][0-9].parquet") if "fetched" not in path.parts)
    noted = [row[-2:] for path in shards for row in records.notes(path).get(records.SERVED_BY, ())]
    entries = (entry for path in run.rglob(".progress/*.jsonl") for entry in entries_of(path))
    values = (value for entry in entries for value in entry.values())
    answers = (answer for value in values for answer in (value if isinstance(value, list) else [value]))
    kept = served_by(answer for answer in answers if isinstance(answer, Mapping) and "fingerprint" in answer)
    return sum(map(sum, noted)) + sum(sum(row[-2:]) for row in kept)


class _Usage(BaseModel):
    prompt_tokens: NonNegativeInt
    completion_tokens: NonNegativeInt


class _Function(BaseModel, extra="allow"):
    name: str = ""
    arguments: str | dict[str, Any] | None = None


class _Call(BaseModel, extra="allow"):  # Gemini wants its signature of a call back
    id: str | None = None
    function: _Function


class _Message(BaseModel):
    content: str | None = None
    reasoning_content: str | None = None  # DeepSeek, llama.cpp, SGLang
    reasoning: str | None = None  # vLLM, ollama, OpenRouter
    tool_calls: list[_Call] | None = None


class _Token(BaseModel):
    logprob: float


class _Logprobs(BaseModel):
    content: list[_Token] | None = None


class _Choice(BaseModel):
    message: _Message
    logprobs: _Logprobs | None = None
    finish_reason: str | None = None


class Reply(BaseModel):
    choices: list[_Choice] = Field(min_length=1)
    usage: _Usage
    model: str = ""
    system_fingerprint: str | None = None


class _TryAgain(Exception):
    """The server could not answer now; `wait` is the time in seconds that it asks for, if it does."""

    def __init__(self, reason: str, wait: float = 0.0) -> None:
        super().__init__(reason)
        self.wait = wait


class Gate:
    """Lets at most `limit` requests through; fewer after the server was busy, and slowly more after its answers."""

    def __init__(self, limit: int) -> None:
        self.largest = limit
        self.limit = float(limit)
        self.n_inside = 0
        self._opens_at = self._narrowed_at = 0.0
        self._changed = asyncio.Condition()

    @asynccontextmanager
    async def entered(self) -> AsyncIterator[float]:
        """Wait for a place; yields the time of entering."""
        async with self._changed:
            await self._changed.wait_for(lambda: self.n_inside < int(self.limit))
            self.n_inside += 1
        try:
            await asyncio.sleep(max(0.0, self._opens_at - time.monotonic()))
            yield time.monotonic()
        finally:
            self.n_inside -= 1
            async with self._changed:
                self._changed.notify_all()

    def widen(self) -> None:
        self.limit = min(self.largest, self.limit + 1 / self.limit)

    def narrow(self, entered_at: float, wait: float) -> bool:
        """Leave a fifth fewer places, once for all requests that are inside; let none in for `wait` seconds.

        Return whether there are fewer now.
        """
        self._opens_at = max(self._opens_at, time.monotonic() + wait)
        if entered_at < self._narrowed_at:
            return False
        self.limit, self._narrowed_at = max(1.0, 0.8 * self.limit), time.monotonic()
        return True


_ssl_context = cache(httpx.create_ssl_context)  # reads all authorities


class _Clients:
    """Clients with one connection each: a pool of httpx looks through all of its connections at each request."""

    def __init__(self, headers: Mapping[str, str]) -> None:
        self._headers = headers
        self._all: list[httpx.AsyncClient] = []
        self._free: list[httpx.AsyncClient] = []

    @contextmanager
    def one(self) -> Iterator[httpx.AsyncClient]:
        client = self._free.pop() if self._free else self._new()
        try:
            yield client
        finally:
            self._free.append(client)

    def _new(self) -> httpx.AsyncClient:
        timeout = httpx.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS)
        transport = httpx.AsyncHTTPTransport(verify=_ssl_context(), socket_options=KEEP_ALIVE)
        self._all.append(httpx.AsyncClient(transport=transport, timeout=timeout, headers=self._headers))
        return self._all[-1]

    async def close(self) -> None:
        for client in self._all:
            await client.aclose()


def ask(
    endpoint: Endpoint, questions: Sequence[Question], decoding: Decoding, report: Report
) -> Generator[tuple[str, Answer]]:
    """Yield the answers by id, as they come; raise `InputError` with the server's words if it refuses a question."""
    waiting = iter(questions)

    gate = Gate(endpoint.max_connections)
    clients = _Clients(endpoint.headers)

    async def answered(question: Question) -> tuple[str, Answer]:
        try:
            answer: Answer = await retrying.copy()(_request, clients, endpoint, gate, question, decoding)
        except _TryAgain as error:
            raise InputError(
                f"{endpoint.address}: gave no answer in {endpoint.n_tries} tries, at last: {error}. {KEPT}"
            ) from None
        return question.question_id, answer

    retrying = AsyncRetrying(
        retry=retry_if_exception_type(_TryAgain), wait=_wait, stop=stop_after_attempt(endpoint.n_tries), reraise=True
    )
    n_read = n_written = 0
    with asyncio.Runner() as runner:  # cancels what is under way if this generator is closed
        loop, ended = runner.get_loop(), asyncio.Queue[asyncio.Task[tuple[str, Answer]]]()
        pending: set[asyncio.Task[tuple[str, Answer]]] = set()
        while True:
            free = endpoint.max_connections - len(pending) if endpoint.allowance.left > 0 else 0
            for question in islice(waiting, free):
                task = loop.create_task(answered(question))
                task.add_done_callback(ended.put_nowait)
                pending.add(task)
            if not pending:
                break
            done = [runner.run(ended.get()), *(ended.get_nowait() for _ in range(ended.qsize()))]
            pending -= set(done)
            for task in sorted(done, key=lambda task: task.exception() is not None):  # answers before a failure
                question_id, answer = task.result()
                endpoint.allowance.left -= answer.n_prompt_tokens + answer.n_tokens
                n_read, n_written = n_read + answer.n_prompt_tokens, n_written + answer.n_tokens
                cost = f", cost {endpoint.prices.of(n_read, n_written)}" if endpoint.prices else ""
                report(0, answer.n_tokens, cost)
                yield question_id, answer
        runner.run(clients.close())
    if next(waiting, None):
        raise InputError(
            f"the answers so far have {endpoint.allowance.total - endpoint.allowance.left:,.0f} tokens, and "
            f"model.max_tokens_total is {endpoint.allowance.total:,}: raise it, and the same command continues"
        )


def _wait(state: RetryCallState) -> float:
    error = state.outcome and state.outcome.exception()
    longer = wait_random_exponential(FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS)(state)
    return max(longer, error.wait if isinstance(error, _TryAgain) else 0.0)


async def _request(
    clients: "_Clients", endpoint: Endpoint, gate: Gate, question: Question, decoding: Decoding
) -> Answer:
    body = {
        "model": endpoint.model,
        "messages": list(question.messages),
        "max_tokens": decoding.max_output_tokens,
        "temperature": decoding.temperature,
        "top_p": decoding.top_p,
        "seed": question.seed,
        **question.more,
        **endpoint.extra_body,
    }
    sent = {key: value for key, value in body.items() if value is not None}
    async with gate.entered() as entered_at:
        try:
            with clients.one() as client:
                answer = await _answer_of(client, endpoint, sent)
        except _TryAgain as error:
            if gate.narrow(entered_at, error.wait):
                logger.warning(
                    "%s: %s; it is asked again, with at most %d requests at a time",
                    endpoint.address, error, gate.limit,
                )  # fmt: skip
            raise
        gate.widen()
        return answer


async def _answer_of(client: httpx.AsyncClient, endpoint: Endpoint, body: Mapping[str, Any]) -> Answer:
    """Send one request; raises `_TryAgain`, or `InputError` if the server refuses it."""
    try:
        response = await client.post(f"{endpoint.address}/chat/completions", json=body)
    except httpx.ReadTimeout:
        raise InputError(f"{endpoint.address}: sent nothing for {ANSWER_SECONDS / 60:.0f} minutes. {KEPT}") from None
    except httpx.RequestError as error:
        raise _TryAgain(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__) from None
    status = response.status_code
    if status == 200:
        return _read(response, endpoint.address)
    words = _words(response).replace(endpoint.key or "\0", "[key]")
    if status in (400, 413, 422) and _TOO_LONG.search(response.text):
        logger.warning("%s: %s", endpoint.address, words)
        return Answer({}, 0, 0, TOO_LONG, endpoint.address, "", "")
    if (status in (408, 409, 425, 429) or status >= 500) and _NO_CREDIT not in response.text:
        raise _TryAgain(f"{status} {words}", _retry_after(response.headers.get("Retry-After", "")))
    hints = {
        401: "Is the key right, and is it in the variable that model.key_variable names?",
        404: "Does the address end as the server's does, mostly in /v1, and does it have the model?",
    }
    raise InputError(f"{endpoint.address}: refuses the request: {status} {words}. {hints.get(status, '')}".rstrip())


def _read(response: httpx.Response, address: str) -> Answer:
    try:
        reply = Reply.model_validate_json(response.content)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, fault["loc"])) or "JSON"
        raise _TryAgain(f"an answer that is not one of a chat completion: {where}: {fault['msg']}") from None
    choice = reply.choices[0]
    tokens = choice.logprobs and choice.logprobs.content
    return Answer(
        {key: value for key, value in choice.message.model_dump().items() if value},
        reply.usage.prompt_tokens,
        reply.usage.completion_tokens,
        choice.finish_reason or "",
        address,
        reply.model,
        reply.system_fingerprint or "",
        math.fsum(token.logprob for token in tokens) if tokens else None,
    )


def _words(response: httpx.Response) -> str:
    """Return what the server says about its refusal: {"error": {"message": "..."}}, or any text."""
    try:
        content = response.json()
    except ValueError:
        content = response.text
    while isinstance(content, dict):
        content = content.get("error") or content.get("message") or content.get("detail") or str(content)
    return " ".join(str(content).split())[:500]


def _retry_after(value: str) -> float:
    """Return the seconds that a header asks to wait; 0 without one."""
    if re.fullmatch(r"\d+(\.\d+)?", value):
        return float(value)
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except ValueError:
        return 0.0
