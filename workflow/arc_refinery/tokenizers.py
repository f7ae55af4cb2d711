"""A model's tokenizer: padding that is no end token, and answers that begin with fixed text."""

import logging

from transformers import AutoTokenizer, PreTrainedTokenizerBase

from arc_refinery.errors import ModelError

LLAMA_PAD = "<|finetune_right_pad_id|>"  # Llama-3.1 knows this token, but its published folders name no padding

logger = logging.getLogger(__name__)


def load_tokenizer(model_path: str) -> PreTrainedTokenizerBase:
    """The tokenizer of a model's folder or hub name; completions follow prompts, so it pads on the left."""
    try:
        tokenizer = AutoTokenizer.from_pretrained(model_path, padding_side="left")
    except (OSError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise ModelError(f"{model_path}: no tokenizer could be loaded ({reason}); correct model.path") from None
    set_pad_token(tokenizer)
    return tokenizer


def set_pad_token(tokenizer: PreTrainedTokenizerBase) -> None:
    """Pad with a token that ends nothing: trainers leave padding out of the loss, and with it an end token."""
    if tokenizer.pad_token not in (None, tokenizer.eos_token):
        return
    if LLAMA_PAD in tokenizer.get_vocab():
        tokenizer.pad_token = LLAMA_PAD
    else:
        tokenizer.pad_token = tokenizer.eos_token
        logger.warning("%s: no token for padding but the end token, which training then masks", tokenizer.name_or_path)


def begin_answers(tokenizer: PreTrainedTokenizerBase, prefix: str) -> None:
    """Let the chat template's generation prompt end with `prefix`: TRL renders conversations itself."""
    if not prefix:
        return
    begun = f"{{%+ if add_generation_prompt %}}{{{{ {prefix!r} }}}}{{% endif %}}"
    tokenizer.chat_template = tokenizer.chat_template.removesuffix("\n") + begun
