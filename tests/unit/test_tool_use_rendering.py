"""The chat template's text around what the model writes: texts by hand, and Qwen3's own rendering of the whole."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from checkout import TINY, TINY_TOOLS
from written_turns import tokens_of

from arc_refinery.errors import InputError
from arc_refinery.records.tool_use import Segment
from arc_refinery.tool_use.config import Generation
from arc_refinery.tool_use.config.experiment import ToolName
from arc_refinery.tool_use.episodes.rendering import ChatMessage, ToolRenderer, check_folder, with_call_format
from arc_refinery.tool_use.tools.toolbox import Toolbox

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

END, HEADER, NO_THOUGHT = "<|im_end|>", "<|im_start|>assistant\n", "<think>\n\n</think>\n\n"
both = pytest.mark.parametrize(("thinking", "begun"), [(True, ""), (False, NO_THOUGHT)])


Make = Callable[..., ToolRenderer]


@pytest.fixture(scope="module")
def tokenizer() -> "PreTrainedTokenizerBase":
    from arc_refinery.models.tokenizers import load_tokenizer

    return load_tokenizer(TINY_TOOLS)


@pytest.fixture(scope="module")
def renderer(tokenizer: "PreTrainedTokenizerBase") -> Make:
    def make(thinking: bool = True, tools: tuple[ToolName, ...] = ("calculator",), stop: str = END) -> ToolRenderer:
        return ToolRenderer(tokenizer, Toolbox(tools).schemas, thinking, stop)

    return make


def called(thought: str, *expressions: str) -> ChatMessage:
    """An assistant's message with calls of the calculator."""
    calls = [
        {"type": "function", "function": {"name": "calculator", "arguments": {"expression": expression}}}
        for expression in expressions
    ]
    return {"role": "assistant", "content": thought, "tool_calls": calls}


def written_call(expression: str) -> str:
    return f'<tool_call>\n{{"name": "calculator", "arguments": {{"expression": "{expression}"}}}}\n</tool_call>'


@both
def test_a_prompt_without_tools(renderer: Make, thinking: bool, begun: str):
    expected = f"<|im_start|>user\n How many? {END}\n{HEADER}{begun}"
    assert renderer(thinking, tools=()).prompt(" How many? ") == expected


def test_a_system_message_is_before_the_question_and_the_tools(tokenizer: "PreTrainedTokenizerBase"):
    own = ToolRenderer(tokenizer, (), True, END, system="Be brief.")
    expected = f"<|im_start|>system\nBe brief.{END}\n<|im_start|>user\nHow many?{END}\n{HEADER}"
    assert own.prompt("How many?") == expected
    with_tools = ToolRenderer(tokenizer, Toolbox(("calculator",)).schemas, True, END, system="Be brief.")
    assert with_tools.prompt("How many?").startswith("<|im_start|>system\nBe brief.\n\n# Tools")
    own.check()


@both
def test_a_prompt_lists_the_tools_that_are_offered(renderer: Make, thinking: bool, begun: str):
    own = renderer(thinking, ("read_file", "calculator"))
    system, _, question = own.prompt("How many?").partition("\n</tools>")
    lines = system.partition("<tools>\n")[2].splitlines()
    assert [json.loads(line) for line in lines] == Toolbox(("calculator", "read_file")).schemas
    assert question.endswith(f"{END}\n<|im_start|>user\nHow many?{END}\n{HEADER}{begun}")


def test_the_order_of_the_tools_in_the_config_changes_no_prompt(renderer: Make):
    assert renderer(tools=("read_file", "calculator")).prompt("?") == renderer(
        tools=("calculator", "read_file")
    ).prompt("?")


def test_a_turn_is_what_the_model_would_write_without_its_end(renderer: Make):
    own = renderer()
    thought = "<think>\n2 rows.\n</think>\n\n"
    assert own.turn({"role": "assistant", "content": f"{thought}#### 6"}) == f"{thought}#### 6"
    assert own.turn(called(thought, "2*3")) == thought + written_call("2*3")
    assert own.turn(called(f"{thought}So:", "2*3", "4+5")) == f"{thought}So:\n" + "\n".join(
        written_call(expression) for expression in ("2*3", "4+5")
    )


def test_without_thinking_a_turn_has_none_for_the_prompt_has_an_empty_one(renderer: Make):
    own = renderer(thinking=False)
    thought = "<think>\n2 rows.\n</think>\n\n"
    assert own.turn({"role": "assistant", "content": f"{thought}#### 6"}) == "#### 6"
    assert own.turn({"role": "assistant", "content": "#### 6"}) == "#### 6"
    assert own.turn(called(thought, "2*3")) == written_call("2*3")


def test_arguments_of_calls_keep_their_own_keys(renderer: Make):
    calls = [
        {"type": "function", "function": {"name": "calculator", "arguments": {"expression": "1"}}},
        {"type": "function", "function": {"name": "execute_code", "arguments": {"code": 'print("a\\n")'}}},
    ]
    turn = renderer().turn({"role": "assistant", "content": "", "tool_calls": calls})
    written = [json.loads(text.partition("\n</tool_call>")[0]) for text in turn.split("<tool_call>\n")[1:]]
    assert written == [call["function"] for call in calls]


@both
def test_results_stand_in_one_block_and_the_model_goes_on_after_it(renderer: Make, thinking: bool, begun: str):
    one = "\n<|im_start|>user\n<tool_response>\n6\n</tool_response>"
    assert renderer(thinking).results(["6"]) == f"{one}{END}\n{HEADER}{begun}"
    more = "\n<tool_response>\n two\nlines \n</tool_response>\n<tool_response>\n\n</tool_response>"
    assert renderer(thinking).results(["6", " two\nlines ", ""]) == f"{one}{more}{END}\n{HEADER}{begun}"


def conversation(thinking: bool) -> list[ChatMessage]:
    """Thoughts everywhere, two calls in one turn, a turn with text before its call."""

    def thought(text: str) -> str:
        return f"<think>\n{text}\n</think>\n\n" if thinking else ""

    return [
        {"role": "user", "content": "How many hats?"},
        called(thought("First the rows.\n\nThen the rest."), "2*3", "4+5"),
        {"role": "tool", "name": "calculator", "content": "6"},
        {"role": "tool", "name": "calculator", "content": "9"},
        called(thought("6 and 9.") + "Nearly there.", "6+9"),
        {"role": "tool", "name": "calculator", "content": "15"},
        {"role": "assistant", "content": thought("15 hats.") + "There are 15.\n\n#### 15"},
    ]


@pytest.mark.parametrize("tools", [("calculator",), ("calculator", "execute_code", "read_file")])
def test_segments_with_thoughts_are_what_qwen3s_template_makes_of_the_whole(
    renderer: Make, tools: tuple[ToolName, ...]
):
    own = renderer(tools=tools)
    segments = list(own.segments(conversation(thinking=True)))
    native = own.tokenizer.apply_chat_template(conversation(True), tools=list(own.schemas), tokenize=False)
    assert "".join(segment.text for segment in segments) + "\n" == native
    assert [segment.is_sampled for segment in segments] == [False, True] * 3


def test_segments_without_thinking_are_those_of_an_episode(renderer: Make):
    own = renderer(thinking=False)
    first = f"{written_call('2*3')}\n{written_call('4+5')}"
    assert list(own.segments(conversation(thinking=False))) == [
        Segment(own.prompt("How many hats?"), False),
        Segment(first + END, True),
        Segment(own.results(["6", "9"]), False),
        Segment(f"Nearly there.\n{written_call('6+9')}{END}", True),
        Segment(own.results(["15"]), False),
        Segment(f"There are 15.\n\n#### 15{END}", True),
    ]
    assert list(own.segments(conversation(thinking=True))) == list(own.segments(conversation(thinking=False)))


def test_tokens_are_those_of_each_segment_by_itself(renderer: Make):
    """`ha` is one token, so the pieces of the last segment, `h` and `a`, must not be merged over their border."""
    own = renderer()
    assert len(own.ids(" ha")) == 1
    ids, mask = tokens_of(own, [Segment(f"{HEADER} h", False), Segment(f"at{END}", True)])
    assert ids == own.ids(f"{HEADER} h") + own.ids(f"at{END}") != own.ids(f"{HEADER} hat{END}")
    assert mask == [0] * len(own.ids(f"{HEADER} h")) + [1] * len(own.ids(f"at{END}"))


# models that cannot


@both
def test_qwen3s_template_passes(renderer: Make, thinking: bool, begun: str):
    for own in (renderer(thinking), renderer(thinking, tools=())):
        with_call_format(own, "hermes").check()


def test_a_template_that_knows_no_tools_is_named():
    from arc_refinery.models.tokenizers import load_tokenizer

    tokenizer = load_tokenizer(TINY)
    with pytest.raises(InputError) as raised:
        with_call_format(ToolRenderer(tokenizer, Toolbox().schemas, True, str(tokenizer.eos_token)), "auto")
    assert str(raised.value).startswith(f"{TINY}: its chat template ")


@pytest.mark.parametrize("stop", ["<|eot_id|>", "", "#### "])
def test_an_unknown_stop_token_is_named_with_the_model(renderer: Make, stop: str):
    expected = f"{TINY_TOOLS}: generation.stop_token {stop!r} is not a token of this model"
    with pytest.raises(InputError) as raised:
        _ = renderer(stop=stop).stop_id
    assert str(raised.value) == expected


@pytest.mark.parametrize(
    ("template", "says"),
    [
        # ChatML without tools: neither calls nor results are there
        (
            "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
            "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
            "does not support tool calls",
        ),
        # nothing of the assistant is ever shown
        ("<|im_start|>{{ messages[0].content }}<|im_end|>", "does not write a turn after"),
        # no stop token follows a turn
        ("{% for m in messages %}{{ m.content }}{% endfor %}", "does not write a turn after"),
    ],
)
def test_templates_that_cannot_carry_calls(template: str, says: str):
    from arc_refinery.models.tokenizers import load_tokenizer

    tokenizer: Any = load_tokenizer(TINY_TOOLS)
    tokenizer.chat_template = template
    with pytest.raises(InputError, match=says):
        with_call_format(ToolRenderer(tokenizer, Toolbox().schemas, True, END), "hermes")


@pytest.mark.parametrize(
    "expression", ["1 / 0", "messages[9].x.y", "messages.pop()", "raise_exception('no')", "{}['a'].b"]
)
def test_a_template_whose_expressions_fail_is_named(expression: str, tmp_path: Path):
    shutil.copytree(TINY_TOOLS, tmp_path / "model")
    (tmp_path / "model/chat_template.jinja").write_text(f"{{{{ {expression} }}}}")
    with pytest.raises(InputError, match="does not support tool calls"):
        check_folder(tmp_path / "model", Generation(max_turn_tokens=64, max_episode_tokens=256))
