"""Folders of models and adapters, corrupted: refused by name before anything is sampled."""

import json
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from adapters import make_adapter
from checkout import TINY

from arc_refinery import chat
from arc_refinery.chat import load_chat
from arc_refinery.config import ModelConfig, PromptedModel
from arc_refinery.errors import InputError, ModelError
from arc_refinery.files import atomic_write
from arc_refinery.hub import out_of_reach
from arc_refinery.model_shape import shape_of
from arc_refinery.sampling.checks import adapter_config, check_model, check_sampling

Change = Callable[[Path], object]


def tiny(tmp_path: Path, change: Change) -> Path:
    folder = tmp_path / "model"
    shutil.copytree(TINY, folder)
    change(folder)
    return folder


def without_a_tensor(folder: Path) -> None:
    from safetensors.torch import load_file, save_file

    weights = load_file(folder / "model.safetensors")
    del weights["model.norm.weight"]
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


def configured(**changes: Any) -> Change:
    def change(folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text())
        added = {key: config[key] + value for key, value in changes.items()}
        if "layer_types" in config and "num_hidden_layers" in changes:
            added["layer_types"] = [config["layer_types"][0]] * added["num_hidden_layers"]
        (folder / "config.json").write_text(json.dumps(config | added))

    return change


def changed(**values: Any) -> Change:
    def change(folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | values))

    return change


def cut(name: str, n_bytes: int) -> Change:
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:n_bytes])


def text(name: str, content: str) -> Change:
    return lambda folder: (folder / name).write_bytes(content.encode("latin-1"))


@pytest.mark.model
@pytest.mark.parametrize(
    "change",
    [
        without_a_tensor,
        configured(num_hidden_layers=1),
        configured(intermediate_size=8),
        cut("model.safetensors", 0),
        cut("model.safetensors", 1000),
        cut("model.safetensors", -100),
        text("model.safetensors", "version https://git-lfs.github.com/spec/v1\n"),
    ],
)
def test_weights_that_are_not_those_of_the_config_are_refused(tmp_path: Path, change: Change) -> None:
    from arc_refinery.sampling.transformers_sampler import load_weights

    folder = tiny(tmp_path, change)
    with pytest.raises(ModelError, match=str(folder)):
        load_weights(ModelConfig(path=str(folder), window=64), in_4bit=False)


@pytest.mark.parametrize(
    "change",
    [
        text("chat_template.jinja", ""),
        text("chat_template.jinja", "{# nothing #}"),
        text("chat_template.jinja", "\xff{{ messages }}"),
        text("chat_template.jinja", "{{ messages[7]['content'] + 1 }}"),
        text("chat_template.jinja", "{% for n in range(10 ** 9) %}x{% endfor %}"),
        text("chat_template.jinja", "{{ raise_exception('no') }}"),
        text("tokenizer_config.json", "[" * 100_000),
        text("tokenizer.json", "{"),
        cut("tokenizer.json", 0),
    ],
)
def test_chat_templates_and_tokenizers_that_cannot_be_used_are_refused(tmp_path: Path, change: Change) -> None:
    folder = tiny(tmp_path, change)
    with pytest.raises(ModelError, match=str(folder)):
        load_chat(str(folder)).render([{"role": "user", "content": "hello"}])


LOOPS = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"


def test_a_chat_template_that_hardly_ends_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat, "RENDER_SECONDS", 0.2)
    folder = tiny(tmp_path, text("chat_template.jinja", LOOPS))
    with pytest.raises(ModelError, match=r"chat_template.jinja: a conversation is not rendered after 0.2 s"):
        load_chat(str(folder)).render([{"role": "user", "content": "hello"}])


@pytest.mark.model
def test_so_is_one_that_only_transformers_can_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat, "RENDER_SECONDS", 0.2)
    folder = tiny(tmp_path, text("chat_template.jinja", LOOPS))
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(settings | {"tokenizer_class": "PreTrainedTokenizer"}))
    loaded = load_chat(str(folder))
    assert isinstance(loaded, chat._OfTransformers)
    with pytest.raises(ModelError, match=f"{folder}: a conversation is not rendered"):
        loaded.render([{"role": "user", "content": "hello"}])


def test_the_limit_of_rendering_ends_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.getsignal(signal.SIGVTALRM)
    load_chat(TINY).render([{"role": "user", "content": "hello"}])
    assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0.0, 0.0)
    assert signal.getsignal(signal.SIGVTALRM) == before


@pytest.mark.model
@pytest.mark.parametrize(
    "content",
    [
        *("", "{", "[]", "\xff{}", '{"eos_token_id": 1', '{"eos_token_id": "</s>"}', '{"eos_token_id": [257, 100000]}'),
        *('{"eos_token_id": true}', '{"eos_token_id": -1}'),
    ],
)
def test_end_tokens_that_cannot_be_read_are_refused(tmp_path: Path, content: str) -> None:
    folder = tiny(tmp_path, text("generation_config.json", content))
    with pytest.raises(InputError, match=r"generation_config\.json"):
        check_model(ModelConfig(path=str(folder), window=64), None)


@pytest.mark.model
@pytest.mark.parametrize("content", ["{}", '{"eos_token_id": null}', '{"eos_token_id": [256, 257]}'])
def test_end_tokens_may_be_several_or_left_to_the_tokenizer(tmp_path: Path, content: str) -> None:
    folder = tiny(tmp_path, text("generation_config.json", content))
    check_model(ModelConfig(path=str(folder), window=64), None)


@pytest.mark.model
def test_answers_that_would_not_end_are_refused_before_sampling(tmp_path: Path) -> None:
    template = Path(TINY, "chat_template.jinja").read_text()
    folder = tiny(tmp_path, text("chat_template.jinja", template.replace("<|end|>", "<|pad|>")))
    with pytest.raises(ModelError, match=r"'<\|pad\|>' follows it, and completions end at \['<\|end\|>'\]"):
        check_sampling([], PromptedModel(path=str(folder), window=64), None, 8)


@pytest.mark.parametrize(
    "change",
    [
        *(text("config.json", content) for content in ("", "[]", "{}", "null", "\xff{}", "[" * 100_000)),
        changed(hidden_size="64"),
        changed(hidden_size=None),
        changed(num_attention_heads=0),
        changed(head_dim=1.5),
        changed(vocab_size=True),
        changed(layer_types=5),
        lambda folder: ((folder / "config.json").unlink(), (folder / "config.json").mkdir()),
    ],
)
def test_sizes_that_cannot_be_read_are_refused(tmp_path: Path, change: Change) -> None:
    with pytest.raises(ModelError, match=r"config\.json: "):
        shape_of(str(tiny(tmp_path, change)))


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"files": []}', '{"files": {"a": "7"}}', '{"files": {"a": 1, "a": 2}}', "[" * 100_000]
)
def test_records_of_fetched_files_are_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "model.json").write_text(content)
    with pytest.raises(InputError, match=r"model\.json"):
        out_of_reach(tmp_path / "model")


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"r": 0}', '{"r": true}', '{"r": 4, "peft_type": "IA3"}', "[" * 100_000]
)
def test_settings_of_no_adapter_are_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "adapter_config.json").write_text(content)
    with pytest.raises(InputError, match=r"adapter_config\.json"):
        adapter_config(tmp_path)


@pytest.mark.model
@pytest.mark.parametrize("kept", ["lora_A", "nothing"])
def test_half_an_adapter_is_refused(tmp_path: Path, kept: str) -> None:
    from safetensors.torch import load_file, save_file

    path = make_adapter(tmp_path / "adapter", TINY) / "adapter_model.safetensors"
    save_file({name: weights for name, weights in load_file(path).items() if kept in name}, path)
    with pytest.raises(InputError, match=f"{path}: lacks weights of"):
        check_model(ModelConfig(path=TINY, window=64), tmp_path / "adapter")


def test_a_device_is_never_replaced() -> None:
    with pytest.raises(InputError, match="/dev/null: is a pipe or a device"), atomic_write(Path("/dev/null")):
        pass
    assert Path("/dev/null").is_char_device()
