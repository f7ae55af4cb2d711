"""The checks of a model behind an address, with a few short questions.

Finding("equal seeds give equal answers", "passed", "2 of 2 equal, other seeds differ")
"""

import time
from collections.abc import Iterator
from dataclasses import replace

import httpx
from pydantic import ValidationError

from arc_refinery.config import ModelConfig
from arc_refinery.doctor.findings import Finding
from arc_refinery.errors import InputError
from arc_refinery.models.chat import Message
from arc_refinery.sampling.backends import Decoding, no_report
from arc_refinery.sampling.endpoint import ANSWER_SECONDS, Answer, Endpoint, Question, Reply, ask
from arc_refinery.tool_use.calls.turns import parse_turn
from arc_refinery.tool_use.tools.toolbox import Toolbox

QUESTION = Message(role="user", content="Write a Python function that counts the vowels of a text.")
SUM = "What is 4817 * 9236? Use the calculator."
DECODING = Decoding(temperature=1.0, top_p=1.0, max_output_tokens=128)
MOST_NAMED = 5
N_TRIES = 4


def checks(model: ModelConfig) -> Iterator[Finding]:
    """Check that the server has the model and answers; say whether it repeats answers, thinks, and how fast it is."""
    names = (
        "the server has the model",
        "the server answers",
        "equal seeds give equal answers",
        "the model calls a tool",
        "several answers to a request, log-probabilities",
        "tokens per second",
    )
    try:
        endpoint = replace(Endpoint.of(model), n_tries=N_TRIES)
        yield _listed(names[0], endpoint)
        (first,), alone = _asked(endpoint, [1])
        thought = "a thought, then " if first.text.startswith("<think>") else ""
        served = f"`{first.model or model.path}`" + (
            f", fingerprint `{first.fingerprint}`" if first.fingerprint else ""
        )
        yield Finding(names[1], "passed", f"{thought}{first.n_tokens} tokens of {served}")
        (again, other), _ = _asked(endpoint, [1, 2])
        equal = "equal" if again.text == first.text else "not equal: attempts do not repeat, even one by one"
        yield Finding(
            names[2], "passed", f"{equal}; another seed gives {'the same' * (other.text == again.text) or 'another'}"
        )
        yield _calling(names[3], endpoint)
        yield _extras(names[4], endpoint)
        many, together = _asked(endpoint, list(range(3, 3 + model.max_connections)))
        rates = [first.n_tokens / alone, sum(answer.n_tokens for answer in many) / together]
        yield Finding(names[5], "passed", f"{rates[0]:.0f} with 1 request, {rates[1]:.0f} with {len(many)} at a time")
    except InputError as error:
        yield Finding(names[1], "failed", str(error), "correct model.address, model.path or the key; is the server up?")


def _asked(endpoint: Endpoint, seeds: list[int]) -> tuple[list[Answer], float]:
    """Return the answers in the order of their seeds, and the seconds that they took."""
    questions = [Question(str(seed), [QUESTION], seed) for seed in seeds]
    started = time.monotonic()
    answers = dict(ask(endpoint, questions, DECODING, no_report))
    return [answers[str(seed)] for seed in seeds], time.monotonic() - started


def _calling(check: str, endpoint: Endpoint) -> Finding:
    toolbox = Toolbox(("calculator",))
    asked = Question("sum", [Message(role="user", content=SUM)], 1, {"tools": toolbox.schemas})
    try:
        ((_, answer),) = ask(endpoint, [asked], DECODING, no_report)
    except InputError as error:  # a server may refuse tools, which refining does not need
        return Finding(check, "not applicable", str(error))
    if "tool_calls" in answer.message:
        return Finding(check, "passed", "as the server's own tool call")
    if parse_turn(answer.text).calls:
        return Finding(check, "passed", "in its text, where calls are read, too")
    return Finding(check, "passed", "no: it was asked for a product with a calculator at hand, and wrote none")


def _extras(check: str, endpoint: Endpoint) -> Finding:
    more = {"max_tokens": 16, "n": 2, "logprobs": True, **endpoint.extra_body}
    body = {"model": endpoint.model, "messages": [QUESTION], **more}
    sent = {key: value for key, value in body.items() if value is not None}
    address, headers = f"{endpoint.address}/chat/completions", endpoint.headers
    try:
        response = httpx.post(address, json=sent, headers=headers, timeout=ANSWER_SECONDS).raise_for_status()
        choices = Reply.model_validate_json(response.content).choices
    except (httpx.HTTPError, ValidationError) as error:
        return Finding(check, "not applicable", f"not from this server ({type(error).__name__})")
    has_logprobs = choices[0].logprobs and choices[0].logprobs.content
    found = "with `logprobs: true` in model.extra_body" if has_logprobs else "none"
    return Finding(check, "passed", f"{len(choices)} of 2 answers (runs ask for one); log-probabilities: {found}")


def _listed(check: str, endpoint: Endpoint) -> Finding:
    try:
        models = httpx.get(f"{endpoint.address}/models", headers=endpoint.headers)
        names = [str(entry["id"]) for entry in models.raise_for_status().json()["data"]]
    except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
        return Finding(check, "not applicable", f"it does not list its models ({type(error).__name__})")
    if endpoint.model in names:
        return Finding(check, "passed", endpoint.model)
    listed = ", ".join(names[:MOST_NAMED]) + (" and others" if len(names) > MOST_NAMED else "")
    return Finding(check, "failed", f"no {endpoint.model}; it has {listed or 'none'}", "set model.path to one of them")
