"""Load a model's tokenizer: padding that is not an end token, and answers that start with fixed text."""

import logging

from transformers import AutoTokenizer, PreTrainedTokenizerBase

from arc_refinery.errors import ModelError

LLAMA_PAD = "<|finetune_right_pad_id|>"  # in Llama-3.1's vocabulary, but its published folders set no padding token

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
