"""Tokenizers with the chat templates of other models: the templates are those that TRL ships, unchanged.

The vocabulary is the embedded model's, with the special tokens that the template writes.
"""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from checkout import TINY_TOOLS

from arc_refinery.tool_use.episodes.rendering import ToolRenderer, with_call_format
from arc_refinery.tool_use.tools.toolbox import Toolbox

CHATML_END, LLAMA_END, LLAMA_CALL_END = "<|im_end|>", "<|eot_id|>", "<|eom_id|>"
PYTHON_TAG = "<|python_tag|>"
LLAMA_TOKENS = [PYTHON_TAG, LLAMA_END, LLAMA_CALL_END, "<|start_header_id|>", "<|end_header_id|>", "<|begin_of_text|>"]

# TRL's names of the templates, and the format of their calls
TEMPLATES = {
    "qwen2_5": "hermes",
    "qwen3": "hermes",
    "qwen3_instruct_2507": "hermes",
    "qwen3_5_think": "qwen-xml",
    "qwen3_5_nothink": "qwen-xml",
    "qwen3_6": "qwen-xml",
    "qwen3_8": "qwen-xml",
    "llama3_1": "llama",
    "llama3_2": "llama",
}
ONE_OF_EACH = {"hermes": "qwen3", "qwen-xml": "qwen3_5_think", "llama": "llama3_1"}


def template_text(name: str) -> str:
    trl = find_spec("trl")
    assert trl is not None and trl.origin is not None
    return Path(trl.origin).with_name("chat_templates").joinpath(f"{name}.jinja").read_text()


def make_tokenizer(template: str) -> Any:
    from arc_refinery.models.tokenizers import load_tokenizer  # it imports torch

    tokenizer = load_tokenizer(TINY_TOOLS)
    tokenizer.chat_template = template_text(template)
    if template.startswith("llama"):
        tokenizer.add_special_tokens({"additional_special_tokens": LLAMA_TOKENS})
        tokenizer.bos_token = LLAMA_TOKENS[-1]
    return tokenizer


def stop_token(template: str) -> str:
    return LLAMA_END if template.startswith("llama") else CHATML_END


def make_renderer(template: str, thinking: bool = True, call_format: str = "auto", toolbox: Any = None) -> ToolRenderer:
    schemas = (toolbox or Toolbox()).schemas
    renderer = ToolRenderer(make_tokenizer(template), schemas, thinking, stop_token(template))
    return with_call_format(renderer, call_format)
