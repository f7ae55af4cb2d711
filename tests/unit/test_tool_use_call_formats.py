"""Formats of tool calls, against the chat templates of the models that use them."""

import json
import random
import shutil
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from call_format_models import (
    CHATML_END,
    TEMPLATES,
    make_renderer,
    make_tokenizer,
    template_text,
)
from checkout import TINY, TINY_TOOLS
from messages import Wording

from arc_refinery.errors import InputError
from arc_refinery.tool_use.calls.formats import FORMATS, MalformedCall, WrittenCall
from arc_refinery.tool_use.calls.turns import parse_turn
from arc_refinery.tool_use.config import Generation
from arc_refinery.tool_use.config.tool_signatures import JsonSchema, ToolSignature
from arc_refinery.tool_use.episodes.rendering import ToolRenderer, check_folder, with_call_format
from arc_refinery.tool_use.tools.toolbox import CallResult, Toolbox, answer_all

every_template = pytest.mark.parametrize("template", TEMPLATES)
every_format = pytest.mark.parametrize("name", FORMATS)
renderer_of = cache(make_renderer)


def text_of_call(name: str, arguments: dict[str, Any], template: str) -> str:
    """The turn that a template writes for a call."""
    call = {"type": "function", "function": {"name": name, "arguments": arguments}}
    return renderer_of(template).turn({"role": "assistant", "content": "", "tool_calls": [call]})


# ---- round trips through the templates ----

SCHEMAS: dict[str, JsonSchema] = {
    "string": {"type": "string"},
    "integer": {"type": "integer"},
    "number": {"type": "number"},
    "boolean": {"type": "boolean"},
    "array": {"type": "array", "items": {"type": "string"}},
    "nested": {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}},
    "nullable": {"type": "integer", "nullable": True},
}
PIECES = [
    *(
        "a",
        "Zoë",
        "帽子",
        "🎩",
        " ",
        "  ",
        "\n",
        "\n\n",
        "\t",
        '"',
        "'",
        "\\",
        "\\n",
        "{",
        "}",
        "[",
        "]",
        ":",
        ",",
        "5",
    ),
    *("true", "None", "null", "<b>", "</b>", "<", ">", "&amp;", "%", "#", "</think>", "<think>", "<tool_call>"),
    *("</tool_call>", "<parameter=x>", "</parameter>", "</function>", "{{ x }}", "{% raw %}", '{"name": "f"}', "; "),
]
ENDS_OF_VALUES = ("<parameter=", "</function>")  # after `</parameter>` they end a value of qwen-xml


def random_text(rng: random.Random) -> str:
    return "".join(rng.choices(PIECES, k=rng.randrange(12)))


def random_value(kind: str, rng: random.Random) -> Any:
    match kind:
        case "string":
            return random_text(rng)
        case "integer":
            return rng.choice([0, -1, 7, 10**30, rng.randrange(-999, 999)])
        case "number":
            return rng.choice([0.5, -1e-7, 1e22, 3, rng.random()])
        case "boolean":
            return rng.random() < 0.5
        case "array":
            return [random_text(rng) for _ in range(rng.randrange(4))]
        case "nested":
            return [[rng.randrange(9) for _ in range(rng.randrange(3))] for _ in range(rng.randrange(3))]
    return rng.choice([None, 3])


def is_ambiguous(arguments: dict[str, Any]) -> bool:
    """Return whether a value has text that also ends a value of qwen-xml."""
    texts = [json.dumps(value, ensure_ascii=False) for value in arguments.values()]
    return any("</parameter>" in text and any(end in text for end in ENDS_OF_VALUES) for text in texts)


@every_template
def test_a_call_that_a_template_writes_is_read_back(template: str):
    rng = random.Random(0)
    renderer, n_left_out = renderer_of(template), 0
    assert renderer.call_format.name == TEMPLATES[template]
    for number in range(300):
        kinds = rng.sample(list(SCHEMAS), rng.randrange(len(SCHEMAS)))
        tool = ToolSignature(f"tool_{number}", "A tool.", {kind: SCHEMAS[kind] for kind in kinds}, (), {})
        arguments = {kind: random_value(kind, rng) for kind in kinds}
        if renderer.call_format.name == "qwen-xml" and is_ambiguous(arguments):
            n_left_out += 1
            continue
        turn = renderer.parse(renderer._opened_thought + text_of_call(tool.name, arguments, template))
        (call,) = turn.calls
        assert (turn.text, call.is_closed) == ("", True)
        assert renderer.call_format.read(call.text, {tool.name: tool}) == (tool.name, arguments)
    assert n_left_out < 100


@every_template
def test_a_call_survives_its_tokens(template: str):
    """Also with the end of the turn, and with a thought before it where there is one."""
    renderer = renderer_of(template)
    renderer.check()
    written = text_of_call("calculator", {"expression": "2*3"}, template)
    text = renderer.text_of_turn(renderer.ids(written + renderer.stop_token))
    (call,) = renderer.parse(text).calls
    assert renderer.call_format.read(call.text, {}) == ("calculator", {"expression": "2*3"})
    assert renderer.stop_token not in text


@every_format
def test_the_example_of_a_call_is_one(name: str):
    call_format = FORMATS[name]
    for tool in Toolbox().signatures:
        example = call_format.example(tool)
        assert call_format.read(example, {tool.name: tool}) == (tool.name, tool.example)
        assert call_format.marks.sub("< ", example) == example  # the model reads it as it is


def test_values_have_the_types_of_the_tools_schema():
    parameters: dict[str, JsonSchema] = {
        name: {"type": kind} for name, kind in {"s": "string", "i": "integer", "b": "boolean", "n": "number"}.items()
    }
    parameters["none"] = {"type": "string", "nullable": True}
    tool = ToolSignature("f", "A tool.", parameters, (), {})
    values = {"s": "5", "i": "5", "b": "True", "n": "1e3", "none": "None", "other": "5"}
    body = "".join(f"<parameter={name}>\n{value}\n</parameter>\n" for name, value in values.items())
    read = FORMATS["qwen-xml"].read(f"<function=f>\n{body}</function>", {"f": tool})
    assert read == ("f", {"s": "5", "i": 5, "b": True, "n": 1000.0, "none": None, "other": "5"})
    wrong = FORMATS["qwen-xml"].read("<function=f><parameter=i>five</parameter></function>", {"f": tool})
    assert wrong == ("f", {"i": "five"})  # the tool says what it expects


# ---- what is a call, and where it ends ----


def xml(expression: str) -> str:
    return f"<function=calculator>\n<parameter=expression>\n{expression}\n</parameter>\n</function>"


XML = xml("1 + 1")
JSON = '{"name": "calculator", "arguments": {"expression": "1 + 1"}}'


@pytest.mark.parametrize(
    ("written", "text", "calls"),
    [
        (f"So:\n\n<tool_call>\n{XML}\n</tool_call>", "So:", [WrittenCall(XML)]),
        (f"<tool_call>{XML}</tool_call>\n<tool_call>{XML}</tool_call>", "", [WrittenCall(XML)] * 2),
        # without the opening tag
        (f"So: {XML}\n</tool_call>", "So:", [WrittenCall(XML)]),
        (f"<tool_call>\n{XML}", "", [WrittenCall(XML, is_closed=False)]),
        ("<tool_call>\n<function=calc", "", [WrittenCall("<function=calc", is_closed=False)]),
        # tags inside a value
        *(
            (f"<tool_call>{xml(inner)}</tool_call>", "", [WrittenCall(xml(inner))])
            for inner in ("</tool_call>", "<tool_call>", "a</parameter>b", "</function>", "<function=f>")
        ),
        ("an answer", "an answer", []),
        (JSON, JSON, []),
    ],
)
def test_calls_are_found(written: str, text: str, calls: list[WrittenCall]):
    turn = parse_turn(written, FORMATS["qwen-xml"])
    assert (turn.text, list(turn.calls)) == (text, calls)
    thought = parse_turn(f"<think>\nI could write {written}\n</think>\n\n{written}", FORMATS["qwen-xml"])
    assert (thought.text, list(thought.calls)) == (text, calls)
    assert thought.thinking.startswith("I could write")


# ---- near misses ----


def fault_of(name: str, written: str) -> str:
    with pytest.raises(MalformedCall) as caught:
        FORMATS[name].read(written, {})
    return str(caught.value)


QUOTE, LINE, ALONE, ONE, COMMENT = 'quote is \\"', "new line is \\n", "code fence", "one object", "comments"


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        ('{"code": "print("hi")"}', QUOTE),
        ('{"code": "print("")"}', QUOTE),
        ('{"code": "print(",")"}', QUOTE),
        ('{"code": "say "hi" now"}', QUOTE),
        ('{"code": "x = " a " b"}', QUOTE),
        ('{"code": """a"""}', QUOTE),
        ('{"code": "x["a"]"}', QUOTE),
        ('{"code": "x = {"a": 1}"}', QUOTE),
        ('{"code": "x = "# hi""}', QUOTE),
        ('{\n"code": "f("a", "b")"\n}', QUOTE),
        ('{"code": "a\nb"}', LINE),
        ('{"code": "a\tb"}', "tab is \\t"),
        (r'{"code": "\d"}', r"backslash is \\"),
        (r'{"code": "C:\users"}', r"backslash is \\"),
        ('{"code": "a"} // so\n', COMMENT),
        ('{"code": "a" # so\n}', COMMENT),
        ('{# so\n"code": "a"}', COMMENT),
        ("{\"code\": 'a'}", "double quotes:"),
        ('{"code": True}', "true, false and null"),
        # the error says it
        ('{"code": "a" "b": "c"}', ""),
        ('{\n"code": "a"\n"b": "c"\n}', ""),
        ('{"code": "a",}', ""),
        ('{"code" "a"}', ""),
        ("{code: 1}", ""),
        ("{'code': 'a'}", ""),
        ('{"code": "a"', ""),
    ],
)
def test_malformed_json_says_what_to_change(arguments: str, hint: str):
    hints = (QUOTE, LINE, "tab is", "backslash is", COMMENT, "double quotes:", "true, false", ALONE, ONE)
    fault = fault_of("hermes", f'{{"name": "f", "arguments": {arguments}}}')
    assert hint in fault
    assert hint or not any(hint in fault for hint in hints)


@pytest.mark.parametrize(
    ("written", "hint"),
    [
        ('```json\n{"name": "f", "arguments": {}}\n```', ALONE),
        ('{"name": "f", "arguments": {}}\n```', ALONE),
        ('{"name": "f", "arguments": {}}\n{"name": "g", "arguments": {}}', ONE),
        ('{"name": "f", "arguments": {}}, {"name": "g", "arguments": {}}', ONE),
        ('// so\n{"name": "f", "arguments": {}}', COMMENT),
    ],
)
def test_what_is_around_a_call_is_named(written: str, hint: str):
    fault = fault_of("hermes", written)
    assert hint in fault
    assert "new line" not in fault


# As Qwen2.5-Coder-1.5B-Instruct writes calls, whose chat template shows them in doubled braces
@pytest.mark.parametrize(
    "call",
    [
        '{{"name": "calculator", "arguments": {"expression": "1 + 1"}}}',
        '{{"name": "calculator", "arguments": {"expression": "1 + 1"}}',
        '{{"name": "calculator", "arguments": {"expression": "1 + 1"}} }',
    ],
    ids=["closed twice", "closed once", "with a space"],
)
@pytest.mark.parametrize("inside", ["1 + 1", "</tool_call>"], ids=["a sum", "a tag"])
def test_a_call_in_doubled_braces_is_read(call: str, inside: str):
    text = f"<tool_call>\n{call.replace('1 + 1', inside)}\n</tool_call> and more"
    _, (written,) = FORMATS["hermes"].split(text)
    assert FORMATS["hermes"].read(written.text, {}) == ("calculator", {"expression": inside})


@pytest.mark.parametrize(
    "call",
    ['{{"name": "calculator"', '{{"name": "f", "arguments": {}}}}}', "{{1}}", "{{}}", '{{"name": "f"}} and more'],
)
def test_other_doubled_braces_are_no_call(call: str):
    with pytest.raises(MalformedCall):
        FORMATS["hermes"].read(call, {})


@pytest.mark.parametrize("opening", ["```json\n", "```\n", "```"])
def test_calls_in_blocks_of_markdown_are_read(opening: str):
    first, second = (
        f'{{"name": "calculator",\n "arguments": {{"expression": "{said}"}}}}' for said in ("1 + 1", "```")
    )
    written = f"I add.\n\n{opening}{first}\n```\nThen:\n{opening}{second}\n```\n\n#### 2"
    turn = parse_turn(f"<think>\n{opening}{first}```\n</think>\n\n{written}")
    assert turn.text == "I add.\n\n\nThen:\n\n\n#### 2"
    assert [call.is_closed for call in turn.calls] == [True, True]
    read = [FORMATS["hermes"].read(call.text, {}) for call in turn.calls]
    assert read == [("calculator", {"expression": "1 + 1"}), ("calculator", {"expression": "```"})]


def test_the_end_of_a_block_opens_no_other_one():
    call = '{"name": "calculator", "arguments": {}}'
    outside, calls = FORMATS["hermes"].split(f"```json\n{call}\n```\n{call}\n```")
    assert (outside, [written.text for written in calls]) == (f"\n{call}\n```", [call])


@pytest.mark.parametrize(
    "block",
    [
        '```json\n{"name": "calculator", "arguments": {"expression": "1"}',
        '```json\n{"name": "calculator", "arguments": "1"}\n```',
        '```json\n{"name": "calculator", "arguments": {}, "type": "function"}\n```',
        '```json\n{"name": "calculator"}\n```',
        '```json\n{"name": "calculator", "arguments": {}}, 1\n```',
        '```python\n{"name": "calculator", "arguments": {}}\n```',
    ],
)
def test_other_blocks_are_text(block: str):
    assert FORMATS["hermes"].split(block) == (block, ())
    text = f"{block} <tool_call>\n{{}}\n</tool_call>"
    assert [call.text for call in FORMATS["hermes"].split(text)[1]] == ["{}"]


def results_of(name: str, written: str) -> list[CallResult]:
    toolbox = Toolbox(("calculator", "read_file"), call_format=FORMATS[name])
    return answer_all([(toolbox, parse_turn(written, FORMATS[name]), 8)])[0]


def tagged(inner: str) -> str:
    return f"<tool_call>\n{inner}\n</tool_call>"


@pytest.mark.parametrize(
    ("name", "written", "fault", "names"),
    [
        ("qwen-xml", f"<tool_call>\n{XML}", "cut_off", " closing tag"),
        ("qwen-xml", tagged('{"name": "calculator"}'), "malformed", "function tag"),
        ("qwen-xml", tagged(""), "malformed", "function tag"),
        ("qwen-xml", tagged("<function=calculator>"), "malformed", " function "),
        ("qwen-xml", tagged(XML.removesuffix("</function>")), "malformed", " function "),
        ("qwen-xml", tagged("<function=calculator><parameter=expression>1</function>"), "malformed", '"expression"'),
        ("qwen-xml", tagged("<function=calculator>expression=1</function>"), "malformed", ": expression=1"),
        ("qwen-xml", tagged(f"{XML}\n{XML}"), "malformed", " one function "),
        (
            "qwen-xml",
            tagged(XML.replace("</function>", "<parameter=expression>2</parameter></function>")),
            "malformed",
            '"expression"',
        ),
        ("qwen-xml", tagged(XML.replace("=calculator", "=browse")), "unknown_tool", '"browse"'),
        ("qwen-xml", tagged(XML.replace("=expression", "=x")), "arguments", '"expression"'),
        ("qwen-xml", tagged(XML.replace("</function>", "<parameter=x>2</parameter></function>")), "arguments", '"x"'),
    ],
)
def test_a_near_miss_is_a_fault_with_a_correct_call(name: str, written: str, fault: str, names: str, wording: Wording):
    (result,) = results_of(name, written)
    assert result.fault == fault
    said, example, _ = result.text.partition(FORMATS[name].example(Toolbox(("calculator",)).signatures[0]))
    assert example
    assert names in said
    wording(result.text)


def test_two_calls_of_a_turn_both_run():
    calls = [xml(expression) for expression in ("2*3", "4+5")]
    assert [result.text for result in results_of("qwen-xml", "\n".join(map(tagged, calls)))] == ["6", "9"]


@every_format
def test_no_text_raises(name: str):
    """Random pieces of calls; each call that is found has a result."""
    rng, call_format = random.Random(0), FORMATS[name]
    pieces = [
        *("<tool_call>", "</tool_call>", "<function=calculator>", "</function>", "<parameter=expression>", "1 + 1"),
        *("</parameter>", '{"name": "calculator", ', '"parameters": ', '"arguments": ', "{", "}", "}}"),
        *('{"expression": "1"}', "[" * 3000, '"', "\\", "\n", "; ", "<think>", "</think>", "9" * 5000, "\ud800"),
    ]
    n_calls = 0
    for _ in range(2000):
        written = "".join(rng.choices(pieces, k=rng.randrange(10)))
        turn = parse_turn(written, call_format)
        n_calls += len(turn.calls)
        for call in turn.calls:
            try:
                call_format.read(call.text, {signature.name: signature for signature in Toolbox().signatures})
            except MalformedCall as error:
                assert str(error)
        assert len(results_of(name, written)) == len(turn.calls)
    assert n_calls > 100


@every_format
def test_no_result_contains_special_tokens(name: str, tmp_path: Path):
    toolbox = Toolbox(("read_file",), folder=tmp_path, call_format=FORMATS[name])
    marks = ["<think>", "</think>", CHATML_END, "<|eot_id|>", "<tool_call>", "</tool_response>"]
    (tmp_path / "marks").write_text("".join(marks))
    assert toolbox.run("read_file", {"path": "marks"}).text == "".join(mark.replace("<", "< ") for mark in marks)


# ---- which format a model has ----


@pytest.mark.parametrize("name", [*FORMATS, "auto"])
@every_template
def test_a_format_is_accepted_only_where_the_template_writes_it(template: str, name: str):
    if name in ("auto", TEMPLATES[template]):
        renderer = make_renderer(template, call_format=name)
        assert renderer.call_format.name == TEMPLATES[template]
        return
    with pytest.raises(InputError) as raised:
        make_renderer(template, call_format=name)
    assert str(raised.value).startswith(f"{TINY_TOOLS}: ")
    assert f" {name}: " in str(raised.value)


@pytest.mark.parametrize(("template", "stop"), [("llama3_1", "<|eot_id|>"), ("phi3", CHATML_END)])
def test_templates_without_calls_of_a_known_format_are_refused(template: str, stop: str, wording: Wording):
    renderer = ToolRenderer(make_tokenizer(template), Toolbox().schemas, True, stop)
    with pytest.raises(InputError, match=r"\(hermes, qwen-xml\)") as raised:
        with_call_format(renderer, "auto")
    wording(raised.value)


def test_a_tokenizer_that_drops_a_tag_is_refused(wording: Wording):
    renderer = make_renderer("qwen3")
    renderer.tokenizer.add_special_tokens({"additional_special_tokens": ["<tool_call>"]})
    with pytest.raises(InputError, match="tokenizer") as raised:
        renderer.check()
    wording(raised.value)


def model_folder(path: Path, template: str) -> Path:
    """A folder of a model that only its template can be read from."""
    shutil.copy(Path(TINY_TOOLS) / "tokenizer_config.json", path)
    (path / "chat_template.jinja").write_text(template)
    return path


@every_template
def test_a_models_folder_is_checked_without_loading_the_model(tmp_path: Path, template: str, wording: Wording):
    """Also where the tokenizer's settings hold the template, as in older folders."""
    folder = model_folder(tmp_path, template_text(template))
    settings = Generation(max_turn_tokens=9, max_episode_tokens=9, stop_token=CHATML_END)
    check_folder(folder, settings)
    (other,) = FORMATS.keys() - {TEMPLATES[template]}
    refused = settings.model_copy(update={"call_format": other})
    with pytest.raises(InputError, match=f"^{folder}: .* {other}:") as raised:
        check_folder(folder, refused)
    wording(raised.value)
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"chat_template": template_text(template)}))
    (folder / "chat_template.jinja").unlink()
    with pytest.raises(InputError):
        check_folder(folder, refused)
    path.unlink()
    check_folder(folder, refused)  # nothing to read: left to the jobs


def test_a_wrong_stop_token_is_named_with_the_end_that_the_template_writes(tmp_path: Path, wording: Wording):
    settings = Generation(max_turn_tokens=9, max_episode_tokens=9)
    with pytest.raises(InputError, match=r"generation\.stop_token '<\|im_end\|>'; .*eot_id") as raised:
        check_folder(model_folder(tmp_path, template_text("llama3_1")), settings)
    wording(raised.value)


def test_the_embedded_models(wording: Wording):
    settings = Generation(max_turn_tokens=9, max_episode_tokens=9)
    check_folder(Path(TINY_TOOLS), settings)
    with pytest.raises(InputError, match=str(TINY)) as raised:
        check_folder(Path(TINY), settings)
    wording(raised.value)


def test_the_tools_of_a_question_keep_the_format():
    renderer = renderer_of("qwen3_5_think")
    assert isinstance(renderer, ToolRenderer)
    assert with_call_format(replace(renderer, schemas=()), "auto").call_format == renderer.call_format
    assert renderer.offering([]).call_format is renderer.call_format
