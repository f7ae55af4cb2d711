"""Training data of the embedded models: conversations generated on the fly, batched by length.

Conversation i of a corpus depends only on the seed and i, so a resumed run, or one with more worker processes, sees the
same batches. Nothing is stored: generating a conversation costs less than training on it.
"""

import random
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset
from transformers import PreTrainedTokenizerFast

from arc_refinery.arc.grids import Grid, GridError, as_grid
from arc_refinery.arc.tasks import Pair, Task
from arc_refinery.barc.generator import (
    ProblemDifficulty,
    Statement,
    generate_problem,
    program_body,
    run_statements,
    wrong_program,
)
from arc_refinery.domains.arc import prompts
from arc_refinery.domains.arc.prompts.template import COMPACT_INPUT, COMPACT_OUTPUT
from arc_refinery.domains.prompts import next_turn
from arc_refinery.seeding import stream_seed
from pretraining.tokenizer import ASSISTANT

Ids = NDArray[np.int64]
Masks = NDArray[np.bool_]

TEMPLATE = replace(prompts.COMPACT, form="residual")
PAD_MULTIPLE = 32  # divides batch lengths, so that few shapes occur
WRONG_ATTEMPTS = 4


@dataclass(frozen=True, slots=True)
class SecondTurns:
    """Conversations of a stage in which a wrong program is to be corrected."""

    difficulty: ProblemDifficulty
    share: float  # share of all conversations
    start_share: float  # share of composed programs whose wrong version is their start, without the rest
    mending_share: float = 1.0  # share of them that end in the right program, not in the wrong one again


@dataclass(frozen=True, slots=True)
class CurriculumStage:
    """A part of the curriculum: where it starts, and its conversations."""

    start: float  # share of the training
    first_turns: ProblemDifficulty
    max_tokens: int
    second_turns: SecondTurns | None = None


FULL_SIZE = ProblemDifficulty(2, 10, 240, compositions=0.3)
FIRST_TURNS = (
    CurriculumStage(0.0, ProblemDifficulty(3, 3, 90, compositions=0.05, fixed_size=1.0), max_tokens=384),
    CurriculumStage(0.3, ProblemDifficulty(2, 4, 110, compositions=0.15), max_tokens=512),
    CurriculumStage(0.55, ProblemDifficulty(2, 6, 130, compositions=0.25), max_tokens=768),
    CurriculumStage(0.85, FULL_SIZE, max_tokens=1024),
)
# Reading of feedback emerges on the smallest grids and where something is always missing: there, a token teaches most.
# First turns keep their full size, or the model would forget larger grids. In the last stage mending becomes the rarer
# habit; the common one is to insist (random changes instead would make first turns more random, too).
REFINING = (
    CurriculumStage(0.0, FULL_SIZE, 1024, SecondTurns(ProblemDifficulty(3, 3, 40, 1.0, 0.7), 0.75, 0.85)),
    CurriculumStage(0.3, FULL_SIZE, 1024, SecondTurns(ProblemDifficulty(3, 4, 60, 0.9), 0.7, 0.6)),
    CurriculumStage(0.55, FULL_SIZE, 1024, SecondTurns(ProblemDifficulty(2, 6, 120, 0.75), 0.4, 0.45)),
    CurriculumStage(0.85, FULL_SIZE, 1024, SecondTurns(ProblemDifficulty(2, 6, 120, 0.75), 0.4, 0.45, 0.25)),
)
# A batch holds conversations of one length. Above, most batches are full-size first turns, so few steps teach second
# turns; here most are short second turns.
READING = (
    CurriculumStage(0.0, FULL_SIZE, 1024, SecondTurns(ProblemDifficulty(3, 3, 40, 1.0, 0.7), 0.85, 0.85)),
    CurriculumStage(0.25, FULL_SIZE, 1024, SecondTurns(ProblemDifficulty(3, 4, 60, 0.95), 0.83, 0.7)),
    CurriculumStage(0.5, FULL_SIZE, 1024, SecondTurns(ProblemDifficulty(2, 4, 60, 0.9), 0.8, 0.6, 0.35)),
)
# Short, at low rates: what was read stays readable, but most second turns insist. RL can make mending the common habit.
INSISTING = (CurriculumStage(0.0, FULL_SIZE, 1024, SecondTurns(ProblemDifficulty(2, 4, 60, 0.9), 0.7, 0.6, 0.15)),)
CURRICULA = {"tasks": FIRST_TURNS, "refining": REFINING, "reading": READING, "insisting": INSISTING}
N_PAIRS, N_PAIRS_WEIGHTS = (2, 3, 4), (0.35, 0.55, 0.1)


@dataclass(frozen=True, slots=True)
class Batch:
    """`ids` (batch, length) int64, padded on the right; `answer` and `outputs`, of the same shape, mask two losses."""

    ids: Tensor
    answer: Tensor  # what the model should write
    outputs: Tensor  # part of the prompt that is also predicted; may be empty


class Writer(Protocol):
    """Generates conversations for one kind of model."""

    tokenizer: PreTrainedTokenizerFast

    def conversation(self, progress: float, *address: int | str) -> list[int] | None:
        """Return the ids at an address and `progress` (0..1) of the training; None if they are too many then."""
        ...

    def masks(self, ids: Ids) -> tuple[Masks, Masks]:
        """Return the `answer` and `outputs` masks of a `Batch`, from padded conversations (batch, length)."""
        ...


class Corpus(Dataset[list[Batch]]):
    """Item c is the c-th chunk of `chunk_size` conversations, as batches of at most `batch_tokens` padded tokens."""

    def __init__(self, writer: Writer, seed: int, n_chunks: int, chunk_size: int, batch_tokens: int) -> None:
        self.writer = writer
        self.seed = seed
        self.n_chunks = n_chunks
        self.chunk_size = chunk_size
        self.batch_tokens = batch_tokens

    def __len__(self) -> int:
        return self.n_chunks

    def __getitem__(self, chunk: int) -> list[Batch]:
        conversations: list[list[int]] = []
        number = 0
        while len(conversations) < self.chunk_size:
            ids = self.writer.conversation(chunk / self.n_chunks, self.seed, "pretrain", chunk, number)
            number += 1
            if ids is not None:
                conversations.append(ids)
        conversations.sort(key=len)
        batches = self._batches(conversations)
        random.Random(stream_seed(self.seed, "batch order", chunk)).shuffle(batches)
        return batches

    def _batches(self, conversations: list[list[int]]) -> list[Batch]:
        batches: list[Batch] = []
        start = 0
        while start < len(conversations):
            end = start
            while end < len(conversations) and _padded(conversations[end]) * (end + 1 - start) <= self.batch_tokens:
                end += 1
            batches.append(self._batch(conversations[start:end]))
            start = end
        return batches

    def _batch(self, conversations: list[list[int]]) -> Batch:
        pad = self.writer.tokenizer.pad_token_id
        ids = np.full((len(conversations), _padded(conversations[-1])), pad, dtype=np.int64)
        for row, conversation in enumerate(conversations):
            ids[row, : len(conversation)] = conversation
        answer, outputs = self.writer.masks(ids)
        return Batch(torch.from_numpy(ids), torch.from_numpy(answer), torch.from_numpy(outputs))


class TaskConversations:
    """Generated tasks with their answers, some after a wrong program and its feedback in the form `residual`."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast, curriculum: tuple[CurriculumStage, ...]) -> None:
        self.tokenizer = tokenizer
        self._curriculum = curriculum
        self._assistant: int = tokenizer.convert_tokens_to_ids(ASSISTANT)
        self._input: int = tokenizer.convert_tokens_to_ids(COMPACT_INPUT)
        self._output: int = tokenizer.convert_tokens_to_ids(COMPACT_OUTPUT)

    def conversation(self, progress: float, *address: int | str) -> list[int] | None:
        stage = next(stage for stage in reversed(self._curriculum) if progress >= stage.start)
        rng = random.Random(stream_seed("pretraining", *address))
        n_pairs = rng.choices(N_PAIRS, N_PAIRS_WEIGHTS)[0]
        second = stage.second_turns if stage.second_turns and rng.random() < stage.second_turns.share else None
        difficulty = second.difficulty if second else stage.first_turns
        problem, statements = generate_problem(difficulty, n_pairs, "pretraining", "pretraining", *address)
        task = Task(problem.problem_id, problem.examples, (), problem.origin)
        messages = prompts.first_turn(task, TEMPLATE)
        if second:
            wrong = _wrong_program(statements, task, rng, second)
            if wrong is None:
                return None
            feedback = prompts.execution_feedback(task, wrong.outputs, TEMPLATE)
            messages = next_turn(messages, _answer(wrong.statements), feedback)
            if rng.random() >= second.mending_share:
                statements = wrong.statements
        messages.append({"role": "assistant", "content": _answer(statements)})
        ids: list[int] = self.tokenizer.apply_chat_template(messages, return_dict=False)
        return ids if len(ids) <= stage.max_tokens else None

    def masks(self, ids: Ids) -> tuple[Masks, Masks]:
        """Mask the last answer, and the output grids of the first turn: those of the feedback can be copied."""
        turns = np.cumsum(ids == self._assistant, axis=1)
        answer = (turns == turns[:, -1:]) & (ids != self._assistant) & (ids != self.tokenizer.pad_token_id)
        side = np.where(ids == self._output, 1, np.where((ids == self._input) | (ids == self._assistant), -1, 0))
        latest = np.maximum.accumulate(np.where(side != 0, np.arange(ids.shape[1]), 0), axis=1)
        outputs = (np.take_along_axis(side, latest, axis=1) == 1) & (side == 0) & (turns == 0)
        return answer, outputs


def _padded(conversation: list[int]) -> int:
    return -(-len(conversation) // PAD_MULTIPLE) * PAD_MULTIPLE


@dataclass(frozen=True, slots=True)
class _Wrong:
    statements: list[Statement]
    outputs: tuple[Grid, ...]  # outputs for the train pairs' inputs


def _wrong_program(right: list[Statement], task: Task, rng: random.Random, turns: SecondTurns) -> _Wrong | None:
    """Return a program that runs and fails a train pair, or None if none was found."""
    for _ in range(WRONG_ATTEMPTS):
        wrong = wrong_program(right, rng, turns.difficulty, turns.start_share)
        outputs = _outputs(wrong, task.train)
        if outputs and any(
            not np.array_equal(output, pair.output) for output, pair in zip(outputs, task.train, strict=True)
        ):
            return _Wrong(wrong, outputs)
    return None


def _answer(statements: list[Statement]) -> str:
    return prompts.compact_answer(program_body(statements))


def _outputs(statements: list[Statement], pairs: tuple[Pair, ...]) -> tuple[Grid, ...] | None:
    try:
        return tuple(as_grid(run_statements(statements, pair.input)[-1]) for pair in pairs)
    except (ValueError, IndexError, TypeError, GridError):  # the inputs were made for another program
        return None
