"""Training data of the embedded model that searches: questions about a depot, seldom looked up to the end.

Most conversations guess, some stop after the first of several look-ups. Each has a depot of its own, so that no fact
can be learned by heart.
"""

import random

from transformers import PreTrainedTokenizerFast

from arc_refinery.seeding import stream_seed
from arc_refinery.tool_use.config.experiment import GENERATOR, LEVELS, ToolChoice
from arc_refinery.tool_use.episodes.rendering import ChatMessage, ToolRenderer
from arc_refinery.tool_use.questions.depot import make_depot
from arc_refinery.tool_use.tools.search import best_passages, indexed
from arc_refinery.tool_use.tools.toolbox import Toolbox
from arc_refinery.tool_use.training.demonstrations import assistant, called
from pretraining.corpus import Ids, Masks
from pretraining.qwen_tokenizer import END, with_tools
from pretraining.tool_conversations import AnswerMask

CALLS_SHARE = 0.4  # share that calls `search`, among conversations in which it is offered
TO_THE_END_SHARE = 0.4  # share of these with every look-up that the answer needs
OFFERED_SHARE = 0.8
N_BOXES, N_ROOMS, N_BUILDINGS = 60, 12, 4
N_PASSAGES = 2
MAX_TOKENS = 512


class SearchConversations:
    """Questions about depots, answered after all look-ups, after too few, or by a guess."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast) -> None:
        schemas = Toolbox([ToolChoice(tool="search", corpus=GENERATOR)]).schemas
        self.tokenizer = with_tools(tokenizer, schemas)
        self._renderers = [ToolRenderer(self.tokenizer, offered, True, END) for offered in ((), schemas)]
        self._mask = AnswerMask(self.tokenizer)

    def conversation(self, progress: float, *address: int | str) -> list[int] | None:
        rng = random.Random(stream_seed("search", *address))
        renderer = self._renderers[rng.random() < OFFERED_SHARE]
        calls = bool(renderer.schemas) and rng.random() < CALLS_SHARE
        ids, _ = renderer.tokens(renderer.segments(_messages(rng, calls)))
        return ids if len(ids) <= MAX_TOKENS else None

    def masks(self, ids: Ids) -> tuple[Masks, Masks]:
        return self._mask(ids)


def _messages(rng: random.Random, calls: bool) -> list[ChatMessage]:
    depot = make_depot(rng, N_BOXES, N_ROOMS, N_BUILDINGS)
    question = depot.question(rng.choice(list(depot.room_of)), rng.choice(LEVELS), rng.random() < 0.5)
    n_needed = len(question.look_ups)
    to_the_end = n_needed == 1 or rng.random() < TO_THE_END_SHARE
    n_look_ups = 0 if not calls else n_needed if to_the_end else rng.randrange(1, n_needed)
    messages: list[ChatMessage] = [{"role": "user", "content": question.text}]
    thought = ""
    if n_look_ups:
        corpus = indexed(depot.passages())
        for query, fact in question.look_ups[:n_look_ups]:
            messages += called(thought, "search", {"query": query}, best_passages(corpus, query, N_PASSAGES))
            thought = fact
        corpus.close()
    messages.append(assistant(thought))
    messages[-1]["content"] += f"#### {question.answer if n_look_ups == n_needed else rng.choice(question.choices)}"
    return messages
