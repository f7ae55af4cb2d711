"""Episodes of a model behind an address: the server gets messages and tools, and the calls in its answers are run here.

Turns are stored as all others are, as text with Hermes' tags around a call, whatever a server speaks:

    answer   {"content": "6 hats.", "tool_calls": [{"id": "a1", "function": {"name": "f", "arguments": "{}"}}]}
    turn     6 hats.\\n\\n<tool_call>\\n{"name": "f", "arguments": {}}\\n</tool_call>
    message  {"role": "tool", "tool_call_id": "a1", "content": "7"}

Where a server reads no calls, those in the content are run. With `generation.call_format` other than `auto`, the server
gets no tools: a system message describes them, results are a user's message, and calls are read from the content.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from arc_refinery import records
from arc_refinery.config.answers import identity
from arc_refinery.models.chat import SERVED, Message, without_marks
from arc_refinery.records.tool_use import Episode, EpisodeMessage, Question
from arc_refinery.sampling import endpoint as server
from arc_refinery.sampling.backends import Decoding, Report
from arc_refinery.sampling.decided import open_answers
from arc_refinery.sampling.shard import Entry, check_shard, resumed
from arc_refinery.seeding import stream_seed
from arc_refinery.tool_use.calls.formats import FORMATS, HERMES, CallFormat
from arc_refinery.tool_use.calls.formats.protocol import CLOSE_CALL, OPEN_CALL, WrittenCall
from arc_refinery.tool_use.calls.turns import ParsedTurn, parse_turn
from arc_refinery.tool_use.config import Generation
from arc_refinery.tool_use.episodes.episodes import Rollout, end_of_turn, results_of_calls
from arc_refinery.tool_use.episodes.rendering import ChatMessage
from arc_refinery.tool_use.episodes.rollout import EpisodeSettings, graded
from arc_refinery.tool_use.grading.domains import modules_hash
from arc_refinery.tool_use.tools.toolbox import Toolbox

_TOOLS = """You can call tools. A call has this form, and ends your message:

{example}

Its result is in the next message, between <tool_response> and </tool_response>. Give the final answer in a message \
without a call. These are the tools, with the JSON schemas of their arguments:

{schemas}"""


@dataclass(frozen=True)
class ServedRenderer:
    """How questions, turns and results go to a server and come back."""

    schemas: Sequence[dict[str, Any]]
    system: str
    call_format: CallFormat
    example: str = ""  # a call; if there is one, the server gets no tools: a system message describes them

    @classmethod
    def of(cls, limits: Generation, toolbox: Toolbox) -> Self:
        if limits.call_format == "auto" or not toolbox.tools:
            return cls(toolbox.schemas, limits.system, HERMES)
        call_format = FORMATS[limits.call_format]
        example = f"{OPEN_CALL}\n{call_format.example(toolbox.signatures[0])}\n{CLOSE_CALL}"
        return cls(toolbox.schemas, limits.system, call_format, example)

    def offering(self, schemas: Sequence[dict[str, Any]]) -> Self:
        """Return a renderer for a set of questions with these tools."""
        return replace(self, schemas=schemas)

    @property
    def more(self) -> dict[str, Any]:
        """More keys of each request."""
        return {"tools": self.schemas} if self.schemas and not self.example else {}

    def opening(self, question: str) -> list[Message]:
        parts = [self.system] if self.system else []
        if self.example:
            schemas = "\n".join(json.dumps(schema["function"], ensure_ascii=False) for schema in self.schemas)
            parts.append(_TOOLS.format(example=self.example, schemas=schemas))
        before = [Message(role="system", content="\n\n".join(parts))] if parts else []
        return [*before, Message(role="user", content=self.masked(question))]

    def masked(self, text: str) -> str:
        """Return a text from outside the model as the model may read it."""
        return without_marks(without_marks(text, SERVED.marks), self.call_format.marks)

    def parse(self, text: str) -> ParsedTurn:
        return parse_turn(text, self.call_format)

    def results(self, texts: Sequence[str], ids: Sequence[str]) -> list[ChatMessage]:
        """Return the messages with the results of a turn's calls."""
        if self.example:
            wrapped = "\n".join(f"<tool_response>\n{text}\n</tool_response>" for text in texts)
            return [{"role": "user", "content": wrapped}]
        return [{"role": "tool", "tool_call_id": name, "content": text} for name, text in zip(ids, texts, strict=True)]


@dataclass(slots=True)
class ServedRollout(Rollout):
    """One episode in progress at a server."""

    conversation: list[Message | ChatMessage] = field(default_factory=list)
    answers: list[server.Answer] = field(default_factory=list)

    @property
    def n_prompt_tokens(self) -> int:
        return self.answers[0].n_prompt_tokens if self.answers else 0

    @property
    def n_sampled(self) -> int:
        return sum(answer.n_tokens for answer in self.answers)

    def add_turn(self, answer: server.Answer, renderer: ServedRenderer, limits: Generation) -> ParsedTurn:
        """Add one turn; without room for the prompt, the episode ends before it."""
        is_cut = answer.finish_reason == "length" or answer.n_tokens > self.room(limits)
        self.answers.append(answer)
        if answer.finish_reason == records.TOO_LONG:
            self.ending = "tokens"
            return renderer.parse("")
        text = text_of(answer)
        calls = tuple(WrittenCall(call) for call in calls_of(answer))
        turn = ParsedTurn("", "", calls) if calls else renderer.parse(text)
        self.messages.append(EpisodeMessage("assistant", text))
        end_of_turn(self, turn, not is_cut, limits)
        return turn

    def room(self, limits: Generation) -> int:
        """The most tokens that the next turn may have."""
        return min(limits.max_turn_tokens, limits.max_episode_tokens - self.n_sampled)

    def add_results(self, texts: Sequence[str], renderer: ServedRenderer, limits: Generation) -> None:
        """Add the results of a turn's calls, if another turn may follow."""
        if self.n_sampled >= limits.max_episode_tokens:
            self.ending = "tokens"
            return
        last = self.answers[-1].message
        read = [call["id"] for call in last.get("tool_calls", ())] or [None] * len(texts)  # by the server, or here
        ids = [name or f"c{len(self.answers):03d}{number:05d}" for number, name in enumerate(read)]
        self.conversation += [sendable(last, ids), *renderer.results(texts, ids)]
        self.messages += [EpisodeMessage("tool", text) for text in texts]


def calls_of(answer: server.Answer) -> list[str]:
    """Return the calls that the server has read, as Hermes writes them."""
    calls = [call["function"] for call in answer.message.get("tool_calls", ())]
    return [f'{{"name": {json.dumps(call["name"])}, "arguments": {_arguments(call)}}}' for call in calls]


def text_of(answer: server.Answer) -> str:
    """Return an answer with its calls as a turn."""
    blocks = "\n".join(f"{OPEN_CALL}\n{call}\n{CLOSE_CALL}" for call in calls_of(answer))
    return answer.text + "\n\n" * bool(blocks and answer.message.get("content")) + blocks


def sendable(message: Mapping[str, Any], ids: Sequence[str]) -> ChatMessage:
    """Return an answer as a message that servers take back: each call has an id, and an object as its arguments."""
    said: ChatMessage = {"role": "assistant", "content": "", **message}
    if calls := message.get("tool_calls"):
        said["tool_calls"] = [
            call
            | {"id": name, "type": "function"}
            | {"function": call["function"] | {"arguments": _object(_arguments(call["function"]))}}
            for name, call in zip(ids, calls, strict=True)
        ]
    return said


def _arguments(function: Mapping[str, Any]) -> str:
    given = function["arguments"] or {}
    return given if isinstance(given, str) else json.dumps(given)


def _object(arguments: str) -> str:
    try:
        return arguments if isinstance(json.loads(arguments), dict) else "{}"
    except (ValueError, RecursionError):
        return "{}"


def run_shard(
    questions: Sequence[Question],
    setup: EpisodeSettings[ServedRenderer],
    shard: int,
    n_shards: int,
    output: Path,
    notes: dict[str, Any],
    run: Path | None = None,
) -> Iterator[Episode]:
    """Yield the episodes of a shard as `rollout.run_shard` does; `notes` get what the server says of itself.

    Progress has each answer before the next one is asked for, results, and each episode when it ends. The tools of an
    interrupted episode run again, for the state that they leave; the model keeps the results that it has read.
    """
    check_shard(shard, n_shards)
    batches = records.batches_of_shard(questions, setup.questions_per_batch, shard, n_shards)
    in_shard = [(question, number) for batch in batches for question in batch for number in range(setup.n_predictions)]
    names = [records.attempt_id(question.question_id, number) for question, number in in_shard]
    at = dict(zip(names, in_shard, strict=True))
    answered = open_answers(setup.model, run)
    limits, renderer = setup.generation, setup.renderer
    decoding = Decoding(limits.temperature, limits.top_p, limits.max_turn_tokens)

    def asked(name: str, rollout: ServedRollout) -> server.Question:
        question, number = at[name]
        seed = stream_seed(setup.seed, question.question_id, number, len(rollout.messages)) % 2**31
        more = {**renderer.more, "max_tokens": rollout.room(limits)}
        place = (question.question_id, len(rollout.answers) + 1, number)
        return server.Question(_turn(name, rollout), rollout.conversation, seed, more, *place)

    def new_entries(done: Sequence[Entry], report: Report) -> Iterator[Entry]:
        known = {name: value for entry in done for name, value in entry.items()}
        running = {
            name: ServedRollout([], setup.open_toolbox(question), conversation=list(renderer.opening(question.text)))
            for name, (question, _) in at.items()
            if name not in known
        }
        while running:
            missing = [asked(name, rollout) for name, rollout in running.items() if _turn(name, rollout) not in known]
            for turn_name, answer in answered(missing, decoding, report):
                known[turn_name] = asdict(answer)
                yield {turn_name: known[turn_name]}
            turns = [
                rollout.add_turn(server.Answer(**known[_turn(name, rollout)]), renderer, limits)
                for name, rollout in running.items()
            ]
            name_of = {id(rollout): name for name, rollout in running.items()}
            for rollout, results in results_of_calls(list(running.values()), turns, limits):
                entry = f"{name_of[id(rollout)]} results {len(rollout.answers)}"
                if entry not in known:  # else the model has read others
                    known[entry] = {"texts": [renderer.masked(result.text) for result in results]}
                    yield {entry: known[entry]}
                rollout.add_results(known[entry]["texts"], renderer, limits)
            ended = [name for name, rollout in running.items() if rollout.ending]
            rollouts = [running.pop(name) for name in ended]
            of_questions, numbers = zip(*(at[name] for name in ended), strict=True) if ended else ((), ())
            for name, episode in zip(ended, graded(rollouts, of_questions, numbers, setup), strict=True):
                yield {name: [asdict(episode)]}

    to_answer = [question for batch in batches for question in batch]
    settings = {
        **setup.settings(),
        **identity(setup.model),
        "questions": [repr(question) for question in to_answer],
        **modules_hash(to_answer),
    }
    answers: list[Mapping[str, Any]] = []
    episodes: dict[str, Any] = {}
    for entry in resumed(output, settings, None, len(at), "episode", new_entries):
        for name, value in entry.items():
            if name in at:
                episodes[name] = value
            elif "fingerprint" in value:
                answers.append(value)
    notes[records.SERVED_BY] = server.served_by(answers)
    for name in at:
        yield from records.from_rows(Episode, episodes[name])


def _turn(name: str, rollout: ServedRollout) -> str:
    return f"{name} turn {len(rollout.answers) + 1}"
