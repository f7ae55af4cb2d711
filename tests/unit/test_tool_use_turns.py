"""A turn taken apart into thinking, text and calls."""

import pytest

from arc_refinery.tool_use.calls.formats import FORMATS, WrittenCall
from arc_refinery.tool_use.calls.turns import ParsedTurn, parse_turn

CALL = WrittenCall('{"a": 1}')
WHOLE = '{"name": "f", "arguments": {"x": 1}}'
WHOLE_CALL = WrittenCall(WHOLE)
WITH_TAG = '{"name": "f", "arguments": {"x": "</think>"}}'


@pytest.mark.parametrize(
    ("written", "turn"),
    [
        ("", ParsedTurn("", "", ())),
        ("#### 3", ParsedTurn("", "#### 3", ())),
        ("<think>\nA thought.\n</think>\n\n#### 3<|im_end|>\n", ParsedTurn("A thought.", "#### 3", ())),
        ("<think>\n\n</think>\n\n#### 3<|im_end|><|endoftext|>", ParsedTurn("", "#### 3", ())),
        # the prompt ended in <think>
        ("A thought.\n</think>\n#### 3", ParsedTurn("A thought.", "#### 3", ())),
        ("<think>a</think>b</think>c", ParsedTurn("a", "b</think>c", ())),
        # text before the thinking
        (
            "\n<think>\n<tool_call>x</tool_call>\n</think>\n\n#### 2",
            ParsedTurn("<tool_call>x</tool_call>", "#### 2", ()),
        ),
        ("Well.<think>a</think>#### 2", ParsedTurn("a", "Well.\n#### 2", ())),
        ("Well.<think>a", ParsedTurn("a", "Well.", (), is_thinking_closed=False)),
        # calls
        ('<tool_call>\n{"a": 1}\n</tool_call>', ParsedTurn("", "", (CALL,))),
        ('<think>t</think>So: <tool_call>{"a": 1}</tool_call> then', ParsedTurn("t", "So:  then", (CALL,))),
        ('<tool_call>{"a": 1}</tool_call>\n<tool_call>x</tool_call>', ParsedTurn("", "", (CALL, WrittenCall("x")))),
        ("<tool_call></tool_call>", ParsedTurn("", "", (WrittenCall(""),))),
        ("a </tool_call> b", ParsedTurn("", "a </tool_call> b", ())),
        # cut off
        ('<tool_call>\n{"a": "1', ParsedTurn("", "", (WrittenCall('{"a": "1', is_closed=False),))),
        ("<tool_call>", ParsedTurn("", "", (WrittenCall("", is_closed=False),))),
        (
            '<tool_call>{"a": 1}<tool_call>{"a": 1}</tool_call>',
            ParsedTurn("", "", (WrittenCall('{"a": 1}', is_closed=False), CALL)),
        ),
        ("<think>\nA thou", ParsedTurn("A thou", "", (), is_thinking_closed=False)),
        # a call in the thinking is a thought, also where the thinking does not end, unless it is complete
        ('<think><tool_call>{"a": 1}</tool_call></think>b', ParsedTurn('<tool_call>{"a": 1}</tool_call>', "b", ())),
        ('<think>a<tool_call>{"a": 1}</tool_call>', ParsedTurn('a<tool_call>{"a": 1}</tool_call>', "", (), False)),
        (f"<think>\na\n<tool_call>\n{WHOLE}\n</tool_call>\n", ParsedTurn("a", "", (WHOLE_CALL,))),
        (f"Well.<think>a<tool_call>{WHOLE}</tool_call>b", ParsedTurn("a", "Well.\nb", (WHOLE_CALL,))),
        (
            f"<think>a<tool_call>{WHOLE}</tool_call><tool_call>x</tool_call>",
            ParsedTurn("a", "", (WHOLE_CALL, WrittenCall("x"))),
        ),
        (
            f"<think>I write <tool_call> and </tool_call>: <tool_call>{WHOLE}</tool_call>",
            ParsedTurn("I write <tool_call> and </tool_call>:", "", (WHOLE_CALL,)),
        ),
        (
            f"<think><tool_call>{WHOLE}</tool_call> or so</think>b",
            ParsedTurn(f"<tool_call>{WHOLE}</tool_call> or so", "b", ()),
        ),
        (f"<think>a<tool_call>{WITH_TAG}</tool_call>", ParsedTurn("a", "", (WrittenCall(WITH_TAG),))),
        (
            f"<think>a<tool_call>{WITH_TAG}</tool_call></think>b",
            ParsedTurn(f"a<tool_call>{WITH_TAG}</tool_call>", "b", ()),
        ),
        (f"<think>a<tool_call>{WHOLE}", ParsedTurn(f"a<tool_call>{WHOLE}", "", (), False)),
        (
            f"<think>a<tool_call>{WHOLE[:-1]}</tool_call>",
            ParsedTurn(f"a<tool_call>{WHOLE[:-1]}</tool_call>", "", (), False),
        ),
        # tags of thinking in a call are its text
        ('<tool_call>{"code": "</think>"}</tool_call>', ParsedTurn("", "", (WrittenCall('{"code": "</think>"}'),))),
        # and so are tags of calls in the texts of its JSON
        (
            'a<tool_call>\n{"code": "<tool_call>"}\n</tool_call>b<tool_call>{"code": "</tool_call>"}</tool_call>',
            ParsedTurn("", "ab", (WrittenCall('{"code": "<tool_call>"}'), WrittenCall('{"code": "</tool_call>"}'))),
        ),
        ("<tool_call>{}{}</tool_call>", ParsedTurn("", "", (WrittenCall("{}{}"),))),
        ("<tool_call> </tool_call>", ParsedTurn("", "", (WrittenCall(""),))),
    ],
)
def test_turns(written: str, turn: ParsedTurn):
    assert parse_turn(written) == turn


def test_an_answer_is_a_turn_that_has_ended_its_thinking_and_calls_nothing():
    assert parse_turn("<think>a</think>b").answer == "b"
    assert parse_turn("<think>a").answer is None
    assert parse_turn("b<tool_call>{}</tool_call>").answer is None
    assert parse_turn("").answer == ""


FUNCTION = "<function=f>\n<parameter=x>\n1\n</parameter>\n</function>"


@pytest.mark.parametrize("call", [f"<tool_call>\n{FUNCTION}\n</tool_call>", f"{FUNCTION}\n</tool_call>"])
def test_a_complete_call_of_qwen_xml_ends_a_thought(call: str):
    call_format, written = FORMATS["qwen-xml"], WrittenCall(FUNCTION)
    assert parse_turn(f"<think>\nHm.\n{call}", call_format) == ParsedTurn("Hm.", "", (written,))
    if not call.startswith("<function"):  # only the first may lack its tag
        assert parse_turn(f"<think>\nHm.\n{call}\n{call}", call_format) == ParsedTurn("Hm.", "", (written, written))
    closed = parse_turn(f"<think>\nHm.\n{call}\n</think>\n6", call_format)
    assert (closed.text, closed.calls) == ("6", ())
    cut = parse_turn(f"<think>\nHm.\n{call[:-12]}", call_format)
    assert (cut.is_thinking_closed, cut.calls) == (False, ())
