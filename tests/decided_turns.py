"""Episodes without a model: completions decided beforehand in the place of TRL's, and a tokenizer of bytes."""

from contextlib import nullcontext
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers

if TYPE_CHECKING:  # it imports transformers
    from transformers import PreTrainedTokenizerFast

CHATML = (
    "{%- for message in messages -%}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{%- endfor -%}{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\n' }}{%- endif -%}"
)


def bytewise(template: str, *special: str) -> "PreTrainedTokenizerFast":
    """A tokenizer of bytes with some special tokens, the last of which ends answers."""
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    inner = Tokenizer(models.WordLevel({token: index for index, token in enumerate(alphabet)}, unk_token="Ā"))
    inner.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.ByteLevel(add_prefix_space=False), pre_tokenizers.Split("", "isolated")]
    )
    inner.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=inner, additional_special_tokens=list(special))
    fast.eos_token, fast.chat_template = special[-1], template
    return fast


def ids_of(tokenizer: Any, text: str) -> list[int]:
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


class Sampling:
    """Takes the place of TRL's trainer: its tokenizer, and completions that were decided beforehand."""

    def __init__(self, tokenizer: Any, conversation: Any, *turns: list[list[int]]) -> None:
        self.rows = [{"prompt": conversation, "prompt_index": 0}] * len(turns[0])
        self.model = SimpleNamespace(training=True)
        self.processing_class, self.eos_token_ids = tokenizer, [tokenizer.eos_token_id]
        self.turns = list(turns)
        self.prompts_seen: list[list[list[int]]] = []

    def timed(self, what: str) -> Any:
        return nullcontext()

    def _tokenize_prompts(self, prompts: list[Any]) -> tuple[list[list[int]], None, None]:
        texts = [
            self.processing_class.apply_chat_template(p, tokenize=False, add_generation_prompt=True) for p in prompts
        ]
        return [ids_of(self.processing_class, text) for text in texts], None, None

    def _generate_single_turn(self, prompt_ids: list[list[int]], *_: Any) -> tuple[list[list[int]], list[list[float]]]:
        self.prompts_seen.append(prompt_ids)
        sampled = self.turns.pop(0)
        return sampled, [[-0.5] * len(ids) for ids in sampled]
