"""Tokenizers with the chat templates of other models: the templates are those that TRL ships, unchanged.

The vocabulary is the embedded model's, with the special tokens that the template writes.
"""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from checkout import TINY_TOOLS

from arc_refinery.tool_use.episodes.rendering import ToolRenderer, with_call_format
from arc_refinery.tool_use.tools.toolbox import Toolbox

CHATML_END = "<|im_end|>"

# TRL's names of the templates, and the format of their calls
TEMPLATES = {
    "qwen2_5": "hermes",
    "qwen3": "hermes",
    "qwen3_instruct_2507": "hermes",
    "qwen3_5_think": "qwen-xml",
    "qwen3_5_nothink": "qwen-xml",
    "qwen3_6": "qwen-xml",
    "qwen3_8": "qwen-xml",
}


def template_text(name: str) -> str:
    trl = find_spec("trl")
    assert trl is not None and trl.origin is not None
    return Path(trl.origin).with_name("chat_templates").joinpath(f"{name}.jinja").read_text()


def make_tokenizer(template: str) -> Any:
    from arc_refinery.models.tokenizers import load_tokenizer  # it imports torch

    tokenizer = load_tokenizer(TINY_TOOLS)
    tokenizer.chat_template = template_text(template)
    return tokenizer


def make_renderer(template: str, thinking: bool = True, call_format: str = "auto", toolbox: Any = None) -> ToolRenderer:
    schemas = (toolbox or Toolbox()).schemas
    renderer = ToolRenderer(make_tokenizer(template), schemas, thinking, CHATML_END)
    return with_call_format(renderer, call_format)
