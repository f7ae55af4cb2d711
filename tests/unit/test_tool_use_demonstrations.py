"""Demonstrations are right, their calls are real, and they read in Qwen3's own template as they should."""

import json
import re
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import jinja2
import pytest
from checkout import TINY_TOOLS
from factories import code_question, correct_answer, gsm8k_question, make_question
from mbpp_rows import mbpp_row

from arc_refinery.answers import final_number
from arc_refinery.domains.gsm8k.generator import gsm8k_row
from arc_refinery.records.tool_use import Question
from arc_refinery.sandbox import Executor
from arc_refinery.tool_use.calls.turns import parse_turn
from arc_refinery.tool_use.config.experiment import ToolName
from arc_refinery.tool_use.episodes.rendering import ToolRenderer
from arc_refinery.tool_use.tools.toolbox import Toolbox, answer_all
from arc_refinery.tool_use.training.demonstrations import conversation, demonstration

HATS = make_question(text="Hats?", reference="14", solution="2 rows: 2*3=<<2*3=6>>6 hats.\nAnd 8: <<6+8=14>>14 hats.")


@pytest.fixture(scope="module")
def tools(executor: Executor) -> Toolbox:
    return Toolbox(executor=executor)


@pytest.fixture(scope="module")
def renderer(tools: Toolbox) -> ToolRenderer:
    from arc_refinery.models.tokenizers import load_tokenizer

    return ToolRenderer(load_tokenizer(TINY_TOOLS), tools.schemas, True, "<|im_end|>")


def test_each_marked_calculation_is_a_call_and_what_follows_is_thought_after_its_result(tools: Toolbox):
    def call(expression: str) -> list[dict[str, object]]:
        return [{"type": "function", "function": {"name": "calculator", "arguments": {"expression": expression}}}]

    assert demonstration(HATS, tools, calls=True) == [
        {"role": "user", "content": "Hats?"},
        {"role": "assistant", "content": "<think>\n2 rows: 2*3=\n</think>\n\n", "tool_calls": call("2*3")},
        {"role": "tool", "name": "calculator", "content": "6"},
        {"role": "assistant", "content": "<think>\n6 hats.\nAnd 8:\n</think>\n\n", "tool_calls": call("6+8")},
        {"role": "tool", "name": "calculator", "content": "14"},
        {"role": "assistant", "content": "<think>\n14 hats.\n</think>\n\n#### 14"},
    ]


def test_without_a_call_the_solution_is_thought(tools: Toolbox):
    assert demonstration(HATS, tools, calls=False) == [
        {"role": "user", "content": "Hats?"},
        {"role": "assistant", "content": "<think>\n2 rows: 2*3=6 hats.\nAnd 8: 14 hats.\n</think>\n\n#### 14"},
    ]


def test_no_call_is_shown_for_an_answer_that_is_a_text(tools: Toolbox):
    capital = make_question(domain="text", text="Capital?", reference="Oslo")
    assert demonstration(capital, tools, calls=True) is None
    assert demonstration(capital, tools, calls=False) == [
        {"role": "user", "content": "Capital?"},
        {"role": "assistant", "content": "<think>\n\n</think>\n\n#### Oslo"},
    ]


@pytest.mark.parametrize("tool", ["execute_code", "python"])
def test_where_code_is_the_only_tool_it_calculates(executor: Executor, tool: ToolName):
    messages = demonstration(HATS, Toolbox((tool,), executor), calls=True)
    assert messages is not None
    functions = [call["function"] for message in messages for call in message.get("tool_calls", [])]
    assert [(call["name"], call["arguments"]["code"]) for call in functions] == [
        (tool, "print(2*3)"),
        (tool, "print(6+8)"),
    ]
    assert [message["content"].strip() for message in messages if message["role"] == "tool"] == ["6", "14"]


def test_a_model_that_does_not_think_says_the_solution(tools: Toolbox):
    from arc_refinery.models.tokenizers import load_tokenizer

    renderer = ToolRenderer(load_tokenizer(TINY_TOOLS), tools.schemas, False, "<|im_end|>")
    demonstration = conversation(HATS, tools, renderer, without_tools=1.0, seed=0)
    assert demonstration is not None
    learned = [segment.text for segment in demonstration.segments if segment.is_sampled]
    assert learned == ["2 rows: 2*3=6 hats.\nAnd 8: 14 hats.\n\n#### 14<|im_end|>"]


@pytest.mark.parametrize("solution", ["<<10/3=3.33>>3.33", "<<2 apples=2>>2", "<<1/0=0>>0"])
def test_a_calculation_that_the_calculator_does_not_confirm_is_not_imitated(
    tools: Toolbox, renderer: ToolRenderer, solution: str
):
    question = make_question(reference="3", solution=solution)
    assert demonstration(question, tools, calls=True) is None
    assert conversation(question, tools, renderer, 0.0, 0) is None


def test_generated_problems_are_answered_rightly(tools: Toolbox):
    for index in range(30):
        question = gsm8k_question(gsm8k_row(3, "train", 0, index), "q")
        messages = demonstration(question, tools, calls=True)
        assert messages is not None
        assert str(final_number(parse_turn(messages[-1]["content"]).answer or "")) == correct_answer(question)


def test_a_program_is_tried_on_the_call_of_its_first_assert(tools: Toolbox):
    for index in range(5):
        row = mbpp_row(index)
        messages = demonstration(code_question(*row["test_list"], reference=row["code"]), tools, calls=True)
        assert messages is not None
        _, call, result, answer = messages
        called, _, expected = row["test_list"][0].removeprefix("assert ").partition(" == ")
        arguments = call["tool_calls"][0]["function"]["arguments"]
        assert arguments == {"code": f"{row['code']}\n\n{called}"}
        assert result["content"] == expected
        assert answer["content"].endswith(f"\n\n```python\n{row['code']}\n```")


def test_a_share_has_no_calls_and_each_question_keeps_its_kind(tools: Toolbox, renderer: ToolRenderer):
    questions = [replace(HATS, question_id=str(i)) for i in range(160)]

    def calling(of: list[Question], seed: int = 0) -> dict[str, bool]:
        demos = [conversation(question, tools, renderer, 0.25, seed) for question in of]
        return {demo.question_id: demo.n_calls > 0 for demo in demos if demo is not None}

    every = calling(questions)
    assert 15 <= 160 - sum(every.values()) <= 65  # 40, and 4.6 standard deviations of it
    last = {name: every[name] for name in map(str, range(120, 160))}
    assert calling(questions[120:]) == last
    assert calling(questions[120:], seed=1) != last


def test_they_read_as_the_model_writes_them(tools: Toolbox):
    """In the template that the model was trained with; each assistant's turn is taken apart again."""
    environment = jinja2.Environment()
    environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    trl = find_spec("trl")  # which takes long to import
    assert trl is not None and trl.origin is not None
    source = Path(trl.origin).with_name("chat_templates") / "qwen3.jinja"
    template = environment.from_string(source.read_text())
    rendered = template.render(messages=demonstration(HATS, tools, calls=True), tools=tools.schemas)
    turns = [
        parse_turn(turn) for turn in re.findall(r"<\|im_start\|>assistant\n(.*?)<\|im_end\|>", rendered, re.DOTALL)
    ]
    assert [(turn.thinking, turn.text, len(turn.calls)) for turn in turns] == [
        ("2 rows: 2*3=", "", 1),
        ("6 hats.\nAnd 8:", "", 1),
        ("14 hats.", "#### 14", 0),
    ]
    assert [answer_all([(tools, turn, 5)])[0][0].text for turn in turns[:2]] == ["6", "14"]
    assert "<tool_response>\n14\n</tool_response>" in rendered
