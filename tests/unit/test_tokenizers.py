"""Chat templates and tokenizers: padding, beginnings and ends of answers; on tokenizers made here, like Llama-3.1's."""

import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from call_format_models import CHATML_END, make_tokenizer
from call_format_models import TEMPLATES as TRL_TEMPLATES
from checkout import TINY, TINY_TOOLS
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
from trl.chat_template_utils import qwen3_chat_template

from arc_refinery.domains.prompts import Renderer
from arc_refinery.errors import ModelError
from arc_refinery.models.chat import ANSWERED, FolderTemplate, Message, begin_answers, ids_after_answer, load_chat
from arc_refinery.models.tokenizers import LLAMA_PAD, end_tokens, load_tokenizer
from arc_refinery.sampling.checks import check_answers_end

CHAT = (
    "{{- bos_token }}\n"
    "{%- for message in messages %}\n"
    "    {{- '[' + message['role'] + ']\\n\\n' + message['content'] | trim + '<end>' }}\n"
    "{%- endfor %}\n"
    "{%- if add_generation_prompt %}\n"
    "    {{- '[assistant]\\n\\n' }}\n"
    "{%- endif %}\n"
)
PREFIX = 'It\'s "so" {{ x }} {% y %} \\n\n```python\nfrom common import *'


def folder(path: Path, *special: str, pad_token: str | None = None) -> str:
    """A folder with a tokenizer that knows some special tokens, and <end> as the end."""
    letters = {chr(number): number for number in range(128)}
    inner = Tokenizer(models.WordLevel({**letters, "<unk>": 128}, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    inner.add_special_tokens(["<begin>", "<end>", *special])
    outer = PreTrainedTokenizerFast(tokenizer_object=inner, bos_token="<begin>", eos_token="<end>", unk_token="<unk>")
    outer.pad_token = pad_token
    outer.chat_template = CHAT
    outer.save_pretrained(path)
    return str(path)


def test_without_padding_llamas_own_token_pads(tmp_path: Path):
    tokenizer = load_tokenizer(folder(tmp_path, LLAMA_PAD))
    assert tokenizer.pad_token == "<|finetune_right_pad_id|>"
    assert tokenizer.pad_token_id == tokenizer.convert_tokens_to_ids(LLAMA_PAD) != tokenizer.eos_token_id


def test_llamas_own_token_replaces_an_end_token_that_pads(tmp_path: Path):
    assert load_tokenizer(folder(tmp_path, LLAMA_PAD, pad_token="<end>")).pad_token == LLAMA_PAD


def test_padding_that_ends_nothing_is_kept(tmp_path: Path):
    assert load_tokenizer(folder(tmp_path, "<pad>", LLAMA_PAD, pad_token="<pad>")).pad_token == "<pad>"


@pytest.mark.parametrize("pad_token", [None, "<end>"])
def test_where_there_is_nothing_else_the_end_token_pads_and_the_log_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, pad_token: str | None
):
    with caplog.at_level(logging.WARNING):
        tokenizer = load_tokenizer(folder(tmp_path, pad_token=pad_token))
    assert tokenizer.pad_token == "<end>"
    assert str(tmp_path) in caplog.text and "padding" in caplog.text


def test_the_embedded_models_padding_is_kept_without_a_word(caplog: pytest.LogCaptureFixture):
    assert load_tokenizer(TINY).pad_token == "<|pad|>"
    assert not caplog.records


def test_prompts_are_padded_on_the_left(tmp_path: Path):
    tokenizer = load_tokenizer(folder(tmp_path, LLAMA_PAD))
    ids = tokenizer(["a", "abc"], padding=True)["input_ids"]
    assert ids[0][:2] == [tokenizer.pad_token_id] * 2 and ids[0][2] == ord("a")


@pytest.mark.parametrize("embedded", [True, False])
def test_a_trainer_and_the_renderer_give_the_same_text_and_tokens(tmp_path: Path, embedded: bool):
    path = TINY if embedded else folder(tmp_path, LLAMA_PAD)
    messages = [Message(role="system", content="s"), Message(role="user", content="u")]
    text, n_tokens = Renderer(path).render([*messages, Message(role="assistant", content=PREFIX)])
    tokenizer = load_tokenizer(path)
    begin_answers(tokenizer, PREFIX)
    assert tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True) == text
    assert text.endswith(PREFIX) and text.removesuffix(PREFIX) == Renderer(path).render(messages)[0]
    assert len(tokenizer.apply_chat_template(messages, add_generation_prompt=True)["input_ids"]) == n_tokens
    # a conversation that is complete has no answer to begin
    assert tokenizer.apply_chat_template(messages, tokenize=False) == load_tokenizer(path).apply_chat_template(
        messages, tokenize=False
    )


TEMPLATES = [
    CHAT,
    "{%- for m in messages %}{{ m | tojson }}{% if loop.first %}{% continue %}{% endif %}<end>{% endfor %}{{ tools }}",
    "{%- for m in messages %}\n{% generation %}\n{{ m.content }}{% set x = 1 %}\n{% endgeneration %}{{ x }}"
    "<end>{% endfor %}",
    qwen3_chat_template,
]


@pytest.mark.parametrize("template", TEMPLATES, ids=["Llama's form", "extensions", "a tag of transformers", "Qwen3"])
def test_without_transformers_a_chat_is_rendered_and_counted_alike(tmp_path: Path, template: str):
    path = folder(tmp_path, "<|im_start|>", "<|im_end|>")
    (tmp_path / "chat_template.jinja").write_text(template)
    chat, tokenizer = load_chat(path), load_tokenizer(path)
    assert isinstance(chat.template, FolderTemplate)
    for contents in (["s", "u"], [" a <b> 'c' \n", "<end>", "é"], ["x"]):
        messages = [
            Message(role=role, content=content) for role, content in zip(["system", "user"], contents, strict=False)
        ]
        text = chat.render(messages)
        assert text == tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        assert chat.count(text) == len(tokenizer(text, add_special_tokens=False)["input_ids"]) > 0


@pytest.mark.parametrize("model", [TINY, TINY_TOOLS])
def test_the_embedded_models_are_read_without_transformers(model: str):
    code = f"""
import sys
from arc_refinery.domains.prompts import Renderer
print(Renderer({model!r}).render([dict(role="user", content="1 + 1?")])[1], "transformers" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    messages = [{"role": "user", "content": "1 + 1?"}]
    n_tokens = len(load_tokenizer(model).apply_chat_template(messages, add_generation_prompt=True)["input_ids"])
    assert done.stdout.split() == [str(n_tokens), "False"]


@pytest.mark.parametrize("damage", [{"tokenizer_class": "LlamaTokenizer"}, {"tokenizer_class": None}])
def test_other_classes_of_tokenizers_are_left_to_transformers(tmp_path: Path, damage: dict[str, str | None]):
    path = folder(tmp_path, LLAMA_PAD)
    settings = json.loads((tmp_path / "tokenizer_config.json").read_text())
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings | damage))
    assert not isinstance(load_chat(path).template, FolderTemplate)


def test_a_model_without_a_chat_template_is_refused(tmp_path: Path):
    path = folder(tmp_path, LLAMA_PAD)
    (tmp_path / "chat_template.jinja").unlink()
    with pytest.raises(ModelError, match="has no chat template"):
        load_chat(path)


def test_without_a_prefix_the_chat_template_stays():
    tokenizer = load_tokenizer(TINY)
    before = tokenizer.chat_template
    begin_answers(tokenizer, "")
    assert tokenizer.chat_template == before


# ends of answers


def chat_folder(path: Path, template: str, **files: dict[str, Any]) -> str:
    """The folder of a model whose tokenizer has the tokens <end> (130), which ends texts, and <turn> (131)."""
    model_folder = folder(path, "<turn>")
    (path / "chat_template.jinja").write_text(template)
    for name, content in ({"config": {"model_type": "llama", "eos_token_id": None}} | files).items():
        (path / f"{name}.json").write_text(json.dumps(content))
    return model_folder


TURNS = "{% for m in messages %}[{{ m.role }}]{{ m.content }}<turn>{% endfor %}"


@pytest.mark.parametrize("model", [TINY, TINY_TOOLS])
def test_answers_of_the_embedded_models_end(model: str):
    check_answers_end(load_tokenizer(model))


@pytest.mark.parametrize("template", TRL_TEMPLATES)
def test_answers_in_templates_of_other_models_end(template: str):
    tokenizer = make_tokenizer(template)
    end = tokenizer.convert_tokens_to_ids(CHATML_END)
    assert ids_after_answer(tokenizer, [end], ANSWERED)[0] == end


@pytest.mark.parametrize(
    "settings",
    [
        {"generation_config": {"eos_token_id": [130, 131]}},
        {"generation_config": {"eos_token_id": 131}},
        {"config": {"model_type": "llama", "eos_token_id": [130, 131]}},  # read without a generation_config.json
    ],
)
def test_answers_may_end_with_a_token_that_only_the_model_names(tmp_path: Path, settings: dict[str, Any]):
    path = chat_folder(tmp_path, TURNS, **settings)
    assert end_tokens(path, load_tokenizer(path)) == [130, 131]
    check_answers_end(load_tokenizer(path))


@pytest.mark.parametrize(
    ("files", "named"),
    [({}, "config.json"), ({"generation_config": {"eos_token_id": 130}}, "generation_config.json")],
)
def test_a_template_whose_answers_would_not_end_is_refused(tmp_path: Path, files: dict[str, Any], named: str):
    path = chat_folder(tmp_path, TURNS, **files)
    with pytest.raises(ModelError) as refusal:
        check_answers_end(load_tokenizer(path))
    for text in (path, "chat_template.jinja", "'<turn>' follows it", "['<end>']", f"eos_token_id in {named}", "[131]"):
        assert text in str(refusal.value)


@pytest.mark.parametrize(
    "template",
    [
        "{% for m in messages %}[{{ m.role }}] {{ m.content }} <end>{% endfor %}",  # as Llama-2's
        "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}",  # does not say how answers end
    ],
)
def test_spaces_and_silence_after_an_answer_are_allowed(tmp_path: Path, template: str):
    check_answers_end(load_tokenizer(chat_folder(tmp_path, template)))


def test_a_template_that_renders_no_answer_is_refused(tmp_path: Path):
    with pytest.raises(ModelError, match=r"chat_template\.jinja: .*only questions"):
        check_answers_end(load_tokenizer(chat_folder(tmp_path, "{{ raise_exception('only questions') }}")))
