"""Demonstrations for supervised fine-tuning: episodes that answer a question correctly.

Their tool calls are executed, so the results equal those of an episode. Messages are those of the chat template, with
thinking in `<think>` tags at the beginning of an assistant's text.
"""

import re

from arc_refinery.answers import final_number
from arc_refinery.records.tool_use import Conversation, Question
from arc_refinery.seeding import stream
from arc_refinery.tool_use.episodes.rendering import ChatMessage, ToolRenderer
from arc_refinery.tool_use.grading.domains import ask
from arc_refinery.tool_use.tools.toolbox import Toolbox

_OPEN, _CLOSE = "<think>\n", "\n</think>\n\n"
_CALCULATION = re.compile(r"<<([^<>=]*)=([^<>]*)>>")


def conversation(
    question: Question, tools: Toolbox, renderer: ToolRenderer, without_tools: float, seed: int
) -> Conversation | None:
    """Return a demonstration as a conversation; None as in `demonstration`.

    A share `without_tools` of the questions, drawn per question, is answered without a call.
    """
    calls = stream(seed, "demonstration", question.question_id).random() >= without_tools
    messages = demonstration(question, tools, calls)
    if messages is None:
        return None
    if not renderer.enable_thinking:
        messages = [_said(message) for message in messages]
    n_calls = sum(len(message.get("tool_calls", [])) for message in messages)
    segments = tuple(renderer.segments(messages))
    return Conversation(question.question_id, segments, n_calls)


def demonstration(question: Question, tools: Toolbox, calls: bool) -> list[ChatMessage] | None:
    """Return the messages of a question and its correct answer, with or without tool calls.

    Calculations are calls of the calculator, or, without that, of a tool that runs Python. None if a tool does not
    give the result in the worked solution, or no tool can; so there are none with calls for answers that are texts.
    """
    messages: list[ChatMessage] = [{"role": "user", "content": question.text}]
    end, worked = ask(question, "final_answer"), ask(question, "worked")
    trial: tuple[str, str] | None = ask(question, "trial")
    if end is None:
        return None
    if not calls:
        turns: list[ChatMessage] | None = [assistant(_CALCULATION.sub("", worked or ""))]
    elif worked is not None:
        turns = _calculation_turns(worked, tools)
    else:
        turns = _trial_turns(*trial, tools) if trial else None
    if turns is None:
        return None
    turns[-1]["content"] += end
    return messages + turns


def _calculation_turns(solution: str, tools: Toolbox) -> list[ChatMessage] | None:
    """Return the solution up to its answer: each marked calculation is a call, the text after it the next thought."""
    if "calculator" in tools.tools:
        tool, argument, form = "calculator", "expression", "{}"
    else:
        tool, argument, form = _python_tool(tools), "code", "print({})"
    messages: list[ChatMessage] = []
    thought, *rest = _CALCULATION.split(solution)
    for expression, value, following in zip(rest[::3], rest[1::3], rest[2::3], strict=True):
        arguments = {argument: form.format(expression)}
        result = tools.run(tool, arguments)
        number = final_number(f"#### {result.text}")
        if result.fault or number is None or number != final_number(f"#### {value}"):
            return None
        messages += called(thought, tool, arguments, result.text)
        thought = following
    return [*messages, assistant(thought)]


def _trial_turns(code: str, example: str, tools: Toolbox) -> list[ChatMessage] | None:
    """Return turns that run the task's own program on an example."""
    tool, arguments = _python_tool(tools), {"code": code}
    result = tools.run(tool, arguments)
    if result.fault:
        return None
    return [
        *called(f"I try the function: {example}", tool, arguments, result.text),
        assistant("That is right."),
    ]


def _python_tool(tools: Toolbox) -> str:
    """Return the tool that runs programs; calls of it fail if there is none."""
    return "python" if "python" in tools.tools and "execute_code" not in tools.tools else "execute_code"


def called(thought: str, tool: str, arguments: dict[str, str], result: str) -> list[ChatMessage]:
    """Return an assistant's message with a call, and the call's result."""
    call = {"type": "function", "function": {"name": tool, "arguments": arguments}}
    return [assistant(thought) | {"tool_calls": [call]}, {"role": "tool", "name": tool, "content": result}]


def assistant(thought: str) -> ChatMessage:
    """Return an assistant's message that begins with a thought."""
    return {"role": "assistant", "content": f"{_OPEN}{thought.strip()}{_CLOSE}"}


def _said(message: ChatMessage) -> ChatMessage:
    """Return a message with its thought as text, for a model that does not think."""
    thought, _, text = message["content"].removeprefix(_OPEN).rpartition(_CLOSE)
    return message | {"content": "\n\n".join(part for part in (thought, text) if part)}
