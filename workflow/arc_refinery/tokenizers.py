"""A model's tokenizer and its ends: of padding, of completions, of answers in its chat template."""

import logging
from collections.abc import Collection, Sequence
from pathlib import Path

from jinja2 import TemplateError
from transformers import AutoConfig, AutoTokenizer, GenerationConfig, PreTrainedTokenizerBase

from arc_refinery.chat import render_limit
from arc_refinery.errors import ModelError
from arc_refinery.messages import Message

LLAMA_PAD = "<|finetune_right_pad_id|>"  # in Llama-3.1's vocabulary, but its published folders set no padding token
ANSWER = "<answer goes here>"
ANSWERED = (Message(role="user", content="question"), Message(role="assistant", content=ANSWER))

logger = logging.getLogger(__name__)


def load_tokenizer(model_path: str) -> PreTrainedTokenizerBase:
    """Load the tokenizer of a model's folder or hub name; pads on the left, because completions follow prompts."""
    try:
        tokenizer = AutoTokenizer.from_pretrained(model_path, padding_side="left")
    except (OSError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise ModelError(f"{model_path}: its tokenizer cannot be loaded ({reason}); correct model.path") from None
    set_pad_token(tokenizer)
    return tokenizer


def set_pad_token(tokenizer: PreTrainedTokenizerBase) -> None:
    """Set a padding token that is not the end token: trainers mask padding in the loss, and would mask the end too."""
    if tokenizer.pad_token not in (None, tokenizer.eos_token):
        return
    if LLAMA_PAD in tokenizer.get_vocab():
        tokenizer.pad_token = LLAMA_PAD
    else:
        tokenizer.pad_token = tokenizer.eos_token
        logger.warning("%s: its only padding token is the end token, which training then masks", tokenizer.name_or_path)


def begin_answers(tokenizer: PreTrainedTokenizerBase, prefix: str) -> None:
    """Make the chat template's generation prompt end with `prefix`, because TRL renders conversations itself."""
    if not prefix:
        return
    suffix = f"{{%+ if add_generation_prompt %}}{{{{ {prefix!r} }}}}{{% endif %}}"
    tokenizer.chat_template = tokenizer.chat_template.removesuffix("\n") + suffix


def end_tokens(model_path: str, tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """Return the tokens that end a completion: the tokenizer's, and those in the model's generation_config.json.

    They are the same for transformers, vLLM and TRL, and without that file all three read config.json.
    """
    try:
        configured = GenerationConfig.from_pretrained(model_path).eos_token_id
    except OSError:
        configured = GenerationConfig.from_model_config(AutoConfig.from_pretrained(model_path)).eos_token_id
    ends = dict.fromkeys([tokenizer.eos_token_id, *(configured if isinstance(configured, list) else [configured])])
    return [end for end in ends if end is not None]


def ids_after_answer(
    tokenizer: PreTrainedTokenizerBase, ends: Collection[int], conversation: Sequence[Message]
) -> list[int]:
    """Return the ids that the chat template writes after `ANSWER`, without leading spaces, up to a next answer.

    Raise `ModelError` if they do not begin with one of `ends`, the tokens that end a completion: a model that was
    trained with this template would not end its completions, and a next turn could not continue them. Nothing may
    follow a last answer, though: then the template does not say how it ends.
    """
    is_open = conversation[-1]["role"] != "assistant"
    model = Path(tokenizer.name_or_path)
    try:
        with render_limit(model):
            text = tokenizer.apply_chat_template(list(conversation), tokenize=False, add_generation_prompt=is_open)
    except ModelError:
        raise
    except (TemplateError, ValueError, TypeError) as error:
        raise ModelError(f"{model}: its chat template cannot render an answer ({error}); correct it") from None
    _, found, after = str(text).rpartition(ANSWER)
    ids: list[int] = tokenizer(after.lstrip(), add_special_tokens=False)["input_ids"]
    if found and (not ids or ids[0] in ends):
        return ids
    template = "chat_template.jinja" if (model / "chat_template.jinja").exists() else "tokenizer_config.json"
    settings = "generation_config.json" if (model / "generation_config.json").exists() else "config.json"
    raise ModelError(
        f"{model}: its chat template ({template}) does not end an answer with a token that ends a completion: "
        f"{after.lstrip()[:20]!r} follows it, and completions end at {tokenizer.convert_ids_to_tokens(list(ends))} "
        f"(eos_token_id in {settings}, eos_token in tokenizer_config.json), so they would run to their limit; if this "
        f"model ends answers with the template's token, add its id {ids[:1]} to eos_token_id; else correct the template"
    )
