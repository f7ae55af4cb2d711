"""The beginning of a model's answers on its way: prompt, completion, second turn, training."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from checkout import TINY
from factories import ARC, first_turns, make_grid, make_task

from arc_refinery.arc.tasks import Pair
from arc_refinery.domains.arc.config import Showing
from arc_refinery.domains.arc.prompts import COMPACT, first_turn
from arc_refinery.domains.arc.records import Prompt
from arc_refinery.domains.domain import Answer, load_domain
from arc_refinery.domains.grading import grades_of
from arc_refinery.domains.prompts import Renderer, extract_code, next_turn
from arc_refinery.errors import InputError, ModelError
from arc_refinery.grades import Grade
from arc_refinery.models.chat import begin_answers
from arc_refinery.models.tokenizers import load_tokenizer
from arc_refinery.records import Attempt
from arc_refinery.refining.config import PromptedModel, Sampling
from arc_refinery.refining.grading import grade_attempts
from arc_refinery.refining.rollout import TrainingPrompt
from arc_refinery.refining.stages import attempts as attempts_module
from arc_refinery.refining.stages.attempts import sample_shard
from arc_refinery.sampling.backends import Decoding, Sample

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
    begun = TrainingPrompt.of(ARC, prompt)
    assert (begun.conversation, begun.prefix) == (first_turn(TASK, COMPACT), PREFIX)
    plain = TrainingPrompt.of(ARC, replace(prompt, messages=tuple(first_turn(TASK, COMPACT))))
    assert (plain.conversation, plain.prefix) == (begun.conversation, "")


# a thought that the chat template opens

FLIP = "def transform(grid):\n    return grid[:, ::-1]"
DRAFT = f"Try\n```python\n{FLIP}\n```\nBut wait"


@pytest.fixture(scope="module", params=["<think>\n", "<think>", "<thought>\n"])
def thinking(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """The tiny model with a chat template that opens a thought, unless it is told not to; and how it does."""
    folder = Path(shutil.copytree(TINY, tmp_path_factory.mktemp("model") / "thinking"))
    template, opened = folder / "chat_template.jinja", str(request.param)
    switch = "enable_thinking is defined and enable_thinking is false"
    end = f"<|assistant|>{{{{ '<think></think>' if {switch} else {opened!r} }}}}{{%- endif -%}}"
    template.write_text(template.read_text().replace("<|assistant|>{%- endif -%}", end))
    return str(folder), opened


def asked(model: str, enable_thinking: bool | None = None) -> Prompt:
    settings, shown = Sampling(batch_size=2, max_output_tokens=64), Showing(use_data_augmentation=False)
    (prompt,) = first_turns([TASK], 2, settings, COMPACT, Renderer(model, enable_thinking), shown=shown)
    return prompt


def test_a_draft_in_it_is_no_answer(
    thinking: tuple[str, str], executors: Any, on_a_cpu: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    model, opened = thinking
    tokenizer, prompt = load_tokenizer(model), asked(model)
    texts = (DRAFT, f"{DRAFT}</think>\n```python\n{FLIP}\n```")

    class Decided:
        def sample(self, requests: Any) -> Any:
            ids = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]
            yield {prompt.prompt_id: [Sample(sampled, "length", -1.0) for sampled in ids]}

    monkeypatch.setattr(attempts_module, "open_sampler", lambda *_: Decided())
    settings = PromptedModel(path=model, template="compact", window=1024)
    sampled = list(sample_shard(ARC, [prompt], settings, None, Decoding(1.0, 1.0, 64, seed=0), tmp_path / "0.parquet"))
    assert [attempt.completion.startswith(f"{opened}Try") for attempt in sampled] == [True, True]
    verdicts = list(grade_attempts(ARC, sampled, {TASK.task_id: TASK}, executors))
    assert [verdict.status for verdict in verdicts] == ["no_code", "ok"] and verdicts[1].score == 1.0
    assert next_turn(prompt.messages, sampled[0].completion, "It failed.")[-2]["content"] == opened + DRAFT
    training = TrainingPrompt.of(ARC, prompt)
    assert [training.answer(text).text for text in texts] == [attempt.completion for attempt in sampled]


@pytest.mark.parametrize("name", ["arc", "code", "environments.letters"])
def test_no_domain_sees_a_thought(name: str, monkeypatch: pytest.MonkeyPatch):
    domain = load_domain(name)
    seen: list[str] = []

    def grade(answers: Any, executors: Any) -> list[Any]:
        seen.extend(answer.text for answer in answers)
        return [(domain.grade_class or Grade)("no_code")] * len(answers)

    async def grade_later(answers: Any, executors: Any) -> list[Any]:
        return grade(answers, executors)

    texts = [f"<think>{DRAFT}", f"<think>\n{DRAFT}</think>I had eggs.", "I had <think>"]
    for member in (grade, grade_later):
        seen.clear()
        monkeypatch.setattr(domain, "grade", member)
        assert len(list(grades_of(domain, [Answer(text, None) for text in texts], (), ["a", "b", "c"]))) == 3
        assert seen == ["", "I had eggs.", "I had <think>"]


def test_the_model_can_be_told_not_to_think(thinking: tuple[str, str]):
    model, opened = thinking
    for told, end in ((None, opened), (True, opened), (False, "<think></think>")):
        prompt = asked(model, told)
        assert prompt.text.endswith(f"<|assistant|>{end}")
        tokenizer = load_tokenizer(model)
        begin_answers(tokenizer, "", told)
        (message,) = first_turn(TASK, COMPACT)
        assert tokenizer.apply_chat_template([message], tokenize=False, add_generation_prompt=True) == prompt.text
    with pytest.raises(InputError, match="enable_thinking"):
        Renderer(model).render(first_turn(TASK, TEMPLATE))


def test_of_templates_with_names_the_default_one_begins_answers(tmp_path: Path):
    folder = Path(shutil.copytree(TINY, tmp_path / "named"))
    file, settings = folder / "chat_template.jinja", json.loads((folder / "tokenizer_config.json").read_text())
    named = {"tool_use": "{{ tools }}", "default": file.read_text()}
    file.unlink()

    def write(*names: str) -> None:
        settings["chat_template"] = [{"name": name, "template": named[name]} for name in names]
        (folder / "tokenizer_config.json").write_text(json.dumps(settings))

    write("tool_use", "default")
    tokenizer = load_tokenizer(str(folder))
    begin_answers(tokenizer, PREFIX, False)
    text = tokenizer.apply_chat_template(first_turn(TASK, COMPACT), tokenize=False, add_generation_prompt=True)
    assert (
        text.endswith("<|assistant|>" + PREFIX) and Renderer(str(folder)).render(first_turn(TASK, TEMPLATE))[0] == text
    )
    write("tool_use")
    with pytest.raises(ModelError, match="no default"):
        Renderer(str(folder), False)
