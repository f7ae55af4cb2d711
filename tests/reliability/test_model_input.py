"""Folders of models and adapters, corrupted: refused by name before anything is sampled."""

import json
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from adapters import make_adapter
from checkout import ROOT, TINY
from factories import ARC, make_prompt

from arc_refinery.config import Lora, ModelConfig
from arc_refinery.errors import InputError, NotFiniteError
from arc_refinery.files import atomic_write
from arc_refinery.models import chat
from arc_refinery.models.chat import load_chat
from arc_refinery.models.hub import out_of_reach
from arc_refinery.models.shape import shape_of, weight_names
from arc_refinery.refining.config import PromptedModel
from arc_refinery.sampling.checks import adapter_config, check_answers_end, check_model, check_trained

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
    with pytest.raises(InputError, match=str(folder)):
        load_weights(ModelConfig(path=str(folder), window=64), in_4bit=False)


@pytest.mark.model
def test_weights_of_other_shapes_are_named_as_such(tmp_path: Path) -> None:
    from arc_refinery.sampling.transformers_sampler import load_weights

    folder = tiny(tmp_path, configured(intermediate_size=8))
    with pytest.raises(InputError, match=r"its weights have other shapes than config\.json says"):
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
    with pytest.raises(InputError, match=str(folder)):
        load_chat(str(folder)).render([{"role": "user", "content": "hello"}])


LOOPS = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"


def test_a_chat_template_that_hardly_ends_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat, "RENDER_SECONDS", 0.2)
    folder = tiny(tmp_path, text("chat_template.jinja", LOOPS))
    with pytest.raises(InputError, match=r"chat_template.jinja: a conversation is not rendered after 0.2 s"):
        load_chat(str(folder)).render([{"role": "user", "content": "hello"}])


@pytest.mark.model
def test_so_is_one_that_only_transformers_can_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat, "RENDER_SECONDS", 0.2)
    folder = tiny(tmp_path, text("chat_template.jinja", LOOPS))
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(settings | {"tokenizer_class": "PreTrainedTokenizer"}))
    loaded = load_chat(str(folder))
    assert not isinstance(loaded.template, chat.FolderTemplate)
    with pytest.raises(InputError, match=f"{folder}/chat_template.jinja: a conversation is not rendered"):
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
    with pytest.raises(InputError, match=r"'<\|pad\|>' follows it, and completions end at \['<\|end\|>'\]"):
        check_answers_end(check_model(PromptedModel(path=str(folder), window=64), None))


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
    with pytest.raises(InputError, match=r"config\.json: "):
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
@pytest.mark.parametrize("matrix", ["lora_A", "nothing"])
def test_half_an_adapter_is_refused(tmp_path: Path, matrix: str) -> None:
    from safetensors.torch import load_file, save_file

    path = make_adapter(tmp_path / "adapter", TINY) / "adapter_model.safetensors"
    save_file({name: weights for name, weights in load_file(path).items() if matrix in name}, path)
    with pytest.raises(InputError, match=f"{path}: lacks weights of"):
        check_model(ModelConfig(path=TINY, window=64), tmp_path / "adapter")


def rewritten(change: Callable[[dict[str, Any]], dict[str, Any]]) -> Change:
    """Change the tensors of the adapter in a folder."""

    def rewrite(folder: Path) -> None:
        from safetensors.torch import load_file, save_file

        path = folder / "adapter_model.safetensors"
        save_file(change(load_file(path)), path)

    return rewrite


def with_nan(weights: dict[str, Any]) -> dict[str, Any]:
    weights[min(weights)][0, 0] = float("nan")
    return weights


def with_infinity(weights: dict[str, Any]) -> dict[str, Any]:
    weights[max(weights)][-1, -1] = float("-inf")
    return weights


def settings_of_adapter(**values: Any) -> Change:
    def change(folder: Path) -> None:
        path = folder / "adapter_config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | values))

    return change


WRONG_ADAPTERS: dict[str, Change] = {
    "nan": rewritten(with_nan),
    "infinity": rewritten(with_infinity),
    "another rank": settings_of_adapter(r=4),
    "a rank of its own": settings_of_adapter(rank_pattern={"q_proj": 2}),
    "one layer": rewritten(lambda weights: {name: value for name, value in weights.items() if ".layers.0." in name}),
    "no layer 3": rewritten(
        lambda weights: {name: value for name, value in weights.items() if ".layers.3." not in name}
    ),
    "no v_proj": rewritten(lambda weights: {name: value for name, value in weights.items() if "v_proj" not in name}),
    "more modules": settings_of_adapter(target_modules="all-linear", modules_to_save=None, r=9),
    "fewer modules": settings_of_adapter(target_modules=["q_proj"]),
    "one layer in its settings": settings_of_adapter(layers_to_transform=[0]),
    "unknown modules": settings_of_adapter(target_modules=["nope"]),
    "modules of numbers": settings_of_adapter(target_modules=7),
    "cut": cut("adapter_model.safetensors", 300),
    "half": cut("adapter_model.safetensors", 40_000),
}


@pytest.mark.model
@pytest.mark.parametrize("what", WRONG_ADAPTERS)
def test_an_adapter_that_is_not_what_its_settings_promise_is_refused(tmp_path: Path, what: str) -> None:
    WRONG_ADAPTERS[what](make_adapter(tmp_path / "adapter", TINY))
    model = ModelConfig(path=TINY, window=64)
    for check in (
        lambda: check_model(model, tmp_path / "adapter"),
        lambda: check_trained(model, Lora(), tmp_path / "adapter"),
    ):
        with pytest.raises(InputError, match=f"{tmp_path}/adapter/adapter_"):
            check()


@pytest.mark.model
def test_an_adapter_of_some_modules_or_layers_is_used_if_its_settings_say_so(tmp_path: Path) -> None:
    change = rewritten(
        lambda weights: {name: value for name, value in weights.items() if ".layers.0.self_attn.v" in name}
    )
    change(make_adapter(tmp_path / "adapter", TINY))
    settings_of_adapter(target_modules=["v_proj"], layers_to_transform=[0])(tmp_path / "adapter")
    check_model(ModelConfig(path=TINY, window=64), tmp_path / "adapter")


def with_tokenizer_of(model: str) -> Change:
    def change(folder: Path) -> None:
        for name in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copy2(ROOT / "workflow/models" / model / name, folder)

    return change


@pytest.mark.model
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (configured(num_hidden_layers=-1), "6"),
        (configured(num_hidden_layers=-5), "6"),
        (with_tokenizer_of("tiny-tools"), "tokenizer"),
    ],
)
def test_files_of_several_models_are_refused(tmp_path: Path, change: Change, words: str) -> None:
    folder = tiny(tmp_path, change)
    model = ModelConfig(path=str(folder), window=64)
    for check in (lambda: check_model(model, None), lambda: check_trained(model, Lora(), None)):
        with pytest.raises(InputError, match=f"{folder}.*{words}"):
            check()


@pytest.mark.model
def test_a_tokenizer_that_lacks_the_models_own_end_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(ROOT / "workflow/models/tiny-tools", folder)
    with_tokenizer_of("tiny")(folder)
    with pytest.raises(InputError, match=f"{folder}: its tokenizer"):
        check_model(ModelConfig(path=str(folder), window=64), None)


@pytest.mark.model
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_of_a_model_that_are_not_finite_are_refused(tmp_path: Path, value: float) -> None:
    from safetensors.torch import load_file, save_file

    from arc_refinery.sampling.transformers_sampler import load_weights

    def change(folder: Path) -> None:
        weights = load_file(folder / "model.safetensors")
        weights["model.layers.2.mlp.up_proj.weight"][0, 0] = value
        save_file(weights, folder / "model.safetensors", {"format": "pt"})

    folder = tiny(tmp_path, change)
    with pytest.raises(InputError, match=rf"{folder}.*model\.layers\.2\.mlp\.up_proj"):
        load_weights(ModelConfig(path=str(folder), window=64), in_4bit=False)


def overflowing(folder: Path) -> None:
    """Finite weights whose predictions are not."""
    from safetensors.torch import load_file, save_file

    weights = load_file(folder / "model.safetensors")
    weights["model.norm.weight"] = weights["model.norm.weight"].float() * 1e38
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


@pytest.mark.model
def test_predictions_that_are_not_finite_are_refused_in_attempts(tmp_path: Path) -> None:
    from arc_refinery.refining.stages.attempts import sample_shard
    from arc_refinery.sampling.backends import Decoding

    model = PromptedModel(path=str(tiny(tmp_path, overflowing)), window=64)
    prompts = [make_prompt(n_tokens=9)]
    with pytest.raises(InputError, match=model.path):
        list(sample_shard(ARC, prompts, model, None, Decoding(1.0, 1.0, 4, 0), tmp_path / "out.parquet"))


@pytest.mark.model
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_predictions_that_are_not_finite_are_refused_in_turns(tmp_path: Path, temperature: float) -> None:
    from arc_refinery.models.tokenizers import load_tokenizer
    from arc_refinery.sampling.backends import Decoding, open_sampler

    folder = tmp_path / "model"
    shutil.copytree(ROOT / "workflow/models/tiny-tools", folder)
    overflowing(folder)
    decoding = Decoding(temperature, 1.0, 4, stop_token="<|im_end|>")
    sampler = open_sampler(ModelConfig(path=str(folder), window=64), None, decoding, load_tokenizer(str(folder)))
    with pytest.raises(NotFiniteError, match=str(folder)):
        sampler.sample_turns([[1, 2, 3]], [0])


@pytest.mark.model
@pytest.mark.parametrize("name", ["nope", "proj", "q_proj.weight"])
def test_target_modules_that_the_model_lacks_are_refused(name: str) -> None:
    with pytest.raises(InputError, match=r"lora\.target_modules"):
        check_trained(ModelConfig(path=TINY, window=64), Lora(target_modules=("q_proj", name)), None)
    check_trained(ModelConfig(path=TINY, window=64), Lora(target_modules=("self_attn.q_proj", "lm_head")), None)


@pytest.mark.parametrize("content", [b"", b"\xff" * 8, b"\x02\0\0\0\0\0\0\0[]", b"\x09\0\0\0\0\0\0\0{"])
def test_names_of_weights_that_cannot_be_read_are_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(InputError, match=r"model\.safetensors"):
        weight_names(tmp_path)


def test_a_device_is_never_replaced() -> None:
    with pytest.raises(InputError, match="/dev/null: is a pipe or a device"), atomic_write(Path("/dev/null")):
        pass
    assert Path("/dev/null").is_char_device()


@pytest.mark.model
def test_a_rank_above_the_models_width_is_refused() -> None:
    model = ModelConfig(path=TINY, window=64)
    with pytest.raises(InputError, match=r"lora_r: is 129; expected at most 128"):
        check_trained(model, Lora(lora_r=129), None)
    check_trained(model, Lora(lora_r=128), None)
