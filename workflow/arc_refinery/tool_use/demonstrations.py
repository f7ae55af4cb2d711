"""Episodes that answer a question correctly, for the model to imitate before it tries by itself.

The calls of a demonstration are really made, so their results are what an episode's would be. Messages are those of
the chat template: thinking stands in `<think>` tags at the head of an assistant's text.
"""

import re

from arc_refinery.records.questions import Question
from arc_refinery.records.transcripts import Conversation
from arc_refinery.seeding import stream
from arc_refinery.tool_use.answers import final_number
from arc_refinery.tool_use.asserts import plan
from arc_refinery.tool_use.rendering import Message, Renderer
from arc_refinery.tool_use.tools import Toolbox

_CALCULATION = re.compile(r"<<([^<>=]*)=([^<>]*)>>")


def conversation(
    question: Question, tools: Toolbox, renderer: Renderer, without_tools: float, seed: int
) -> Conversation | None:
    """An episode to imitate, with calls of tools or, of a share of the questions, without; None: see `demonstration`.

    Which one it is, is drawn for each question by itself.
    """
    calls = stream(seed, "demonstration", question.question_id).random() >= without_tools
    messages = demonstration(question, tools, calls)
    if messages is None:
        return None
    n_calls = sum(len(message.get("tool_calls", [])) for message in messages)
    segments = tuple(renderer.segments(messages))
    return Conversation(question.question_id, segments, n_calls)


def demonstration(question: Question, tools: Toolbox, calls: bool) -> list[Message] | None:
    """The question and a right answer, with the calls of tools that lead to it, or with no call.

    None where a tool does not give what the worked solution says: there is nothing to imitate.
    """
    asked: list[Message] = [{"role": "user", "content": question.text}]
    match question.kind:
        case "gsm8k":
            worked = _worked(question, tools) if calls else [_said(_CALCULATION.sub("", question.solution))]
            end = f"#### {question.reference}"
        case "code_exec":
            worked = _tried(question, tools) if calls else [_said("")]
            end = f"```python\n{question.reference.strip()}\n```"
        case "exact_match":
            worked, end = [_said("")], f"#### {question.reference}"
    if worked is None:
        return None
    worked[-1]["content"] += end
    return asked + worked


def _worked(question: Question, tools: Toolbox) -> list[Message] | None:
    """The solution up to its answer: each marked calculation is a call, what follows it is thought after the result."""
    messages: list[Message] = []
    thought, *rest = _CALCULATION.split(question.solution)
    for expression, value, following in zip(rest[::3], rest[1::3], rest[2::3], strict=True):
        result = tools.run("calculator", {"expression": expression})
        number = final_number(f"#### {result.text}")
        if result.fault or number is None or number != final_number(f"#### {value}"):
            return None
        messages += _called(thought, "calculator", {"expression": expression}, result.text)
        thought = following
    return [*messages, _said(thought)]


def _tried(question: Question, tools: Toolbox) -> list[Message] | None:
    """The program is tried on the call of its first assert."""
    examples = plan(question.asserts, question.reference).calls if question.asserts else ()
    if not examples:
        return None
    arguments = {"code": f"{question.reference.strip()}\n\n{examples[0]}"}
    result = tools.run("execute_code", arguments)
    if result.fault:
        return None
    return [
        *_called(f"I try the function: {examples[0]}", "execute_code", arguments, result.text),
        _said("That is what the test expects."),
    ]


def _called(thought: str, tool: str, arguments: dict[str, str], result: str) -> list[Message]:
    call = {"type": "function", "function": {"name": tool, "arguments": arguments}}
    return [_said(thought) | {"tool_calls": [call]}, {"role": "tool", "name": tool, "content": result}]


def _said(thought: str) -> Message:
    """An assistant's message that begins with a thought."""
    return {"role": "assistant", "content": f"<think>\n{thought.strip()}\n</think>\n\n"}
