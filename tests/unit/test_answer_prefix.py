"""The beginning of a model's answers on its way: prompt, completion, second turn, training."""

from dataclasses import replace

import pytest
from checkout import TINY
from factories import ARC, first_turns, make_grid, make_task

from arc_refinery.arc.tasks import Pair
from arc_refinery.records import Attempt
from arc_refinery.refining.attempts import sample_shard
from arc_refinery.refining.config import PromptedModel, Sampling
from arc_refinery.refining.domains.arc.config import Showing
from arc_refinery.refining.domains.arc.prompts import COMPACT, first_turn
from arc_refinery.refining.domains.arc.records import Prompt
from arc_refinery.refining.prompts import Renderer, extract_code, next_turn
from arc_refinery.sampling.backends import Decoding

PREFIX = "As follows.\n```python\nfrom common import *\n\ndef transform(grid):"
TEMPLATE = replace(COMPACT, assistant_prefix=PREFIX)
TASK = make_task(train=(Pair(make_grid("12"), make_grid("21")),) * 2)


@pytest.fixture(scope="module")
def prompt(renderer: Renderer) -> Prompt:
    settings = Sampling(batch_size=3, max_output_tokens=16)
    (prompt,) = first_turns([TASK], 3, settings, TEMPLATE, renderer, shown=Showing(use_data_augmentation=False))
    return prompt


@pytest.fixture(scope="module")
def attempts(prompt: Prompt, on_a_cpu: None, tmp_path_factory: pytest.TempPathFactory) -> list[Attempt]:
    model = PromptedModel(path=TINY, template="compact", window=1024)
    output = tmp_path_factory.mktemp("attempts") / "000.parquet"
    return list(sample_shard(ARC, [prompt], model, None, Decoding(1.0, 1.0, 16, seed=0), output))


def test_the_prompt_ends_with_it(prompt: Prompt):
    assert prompt.text.endswith("\n1 21<|assistant|>" + PREFIX)


@pytest.mark.model
def test_the_completion_begins_with_it_and_holds_the_whole_program(attempts: list[Attempt]):
    assert len(attempts) == 3
    for attempt in attempts:
        assert attempt.completion.startswith(PREFIX)
        assert attempt.completion.count(PREFIX) == 1
        assert str(extract_code(attempt.completion)).startswith("from common import *\n\ndef transform(grid):")
        assert attempt.n_tokens <= 16  # sampled tokens alone


def test_the_next_turn_shows_the_whole_answer_once_and_begins_the_next(renderer: Renderer, prompt: Prompt):
    answer = PREFIX + "\n    return 0\n```"
    text, _ = renderer.render(next_turn(prompt.messages, answer, "It failed."))
    (message,) = first_turn(TASK, COMPACT)
    assert text == f"<|user|>{message['content']}<|assistant|>{answer}<|end|><|user|>It failed.<|assistant|>{PREFIX}"


def test_training_asks_without_it_and_hands_it_to_the_reward(prompt: Prompt):
    from arc_refinery.refining.rollout import TrainingPrompt

    begun = TrainingPrompt.of(ARC, prompt)
    assert (begun.conversation, begun.prefix) == (first_turn(TASK, COMPACT), PREFIX)
    plain = TrainingPrompt.of(ARC, replace(prompt, messages=tuple(first_turn(TASK, COMPACT))))
    assert (plain.conversation, plain.prefix) == (begun.conversation, "")
