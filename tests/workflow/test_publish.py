"""An adapter that an experiment trained, published: it loads where the checkout is not, and writes the same."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from checkout import TINY, Checkout
from experiments import words_of
from hub import TOKEN, Hub, files_of
from messages import Wording
from processes import BIN
from safetensors.torch import load_file, save_file

from arc_refinery import records
from arc_refinery.config import load_experiment
from arc_refinery.domains.arc.prompts import load_template
from arc_refinery.domains.arc.records import Attempt, Prompt

pytestmark = pytest.mark.snakemake

ADAPTER = "results/small/adapters/trained"
N_TOKENS = 24
LOAD = """
import json, sys
import torch
from peft import AutoPeftModelForCausalLM
from transformers import AutoTokenizer

name, n_tokens = sys.argv[1], int(sys.argv[2])
model, tokenizer = AutoPeftModelForCausalLM.from_pretrained(name).eval(), AutoTokenizer.from_pretrained(name)
for text in json.load(sys.stdin):
    ids = torch.tensor([tokenizer(text, add_special_tokens=False)["input_ids"]])
    settings = {"attention_mask": torch.ones_like(ids), "max_new_tokens": n_tokens, "do_sample": False}
    written = model.generate(input_ids=ids, **settings)
    print(json.dumps(tokenizer.decode(written[0, ids.shape[1] :], skip_special_tokens=True)))
"""


def publish(
    checkout: Checkout, hub: Hub, home: Path, *flags: str, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Typed in another folder than the experiment's."""
    home.mkdir(exist_ok=True)
    command = [str(BIN / "arc-refinery"), "report", "publish", str(checkout.folder / ADAPTER), *flags]
    environment = hub.environment(home, **variables)
    return subprocess.run(command, cwd=home, env=environment, capture_output=True, text=True, check=False)


def greedy(checkout: Checkout, prompts: Path, output: Path, adapter: str | None = None) -> list[str]:
    """The likeliest completion of each prompt, by the pipeline's own sampler."""
    settings = {
        "model": {"path": TINY, "backend": "transformers", "window": 1024},
        "sampling": {"temperature": 0, "max_output_tokens": N_TOKENS},
    }
    done = checkout.run("arc-refinery", *words_of("sample", settings, prompts=prompts, adapter=adapter, output=output))
    assert done.returncode == 0, done.stderr
    attempts = list(records.read(output, Attempt))
    return list({attempt.prompt_id: attempt.completion for attempt in attempts}.values())


def test_what_was_published_loads_from_the_hub_and_writes_what_the_experiment_would(
    finished_once: Checkout, hub: Hub, tmp_path: Path
):
    commit = hub.add("model", "owner/tiny", files_of(Path(TINY)))
    output, empty = tmp_path / "published", tmp_path / "empty"
    done = publish(
        finished_once, hub, tmp_path / "home", "--output", str(output), "--base", f"owner/tiny@{commit}",
        "--license", "mit", "--repository", "me/adapter", HF_TOKEN=TOKEN,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == f"{hub.address}/me/adapter"
    assert hub.private == {"me/adapter"}
    assert hub.commits["model", "me/adapter", "main"] == files_of(output)
    assert all(path.stat().st_mode & 0o044 == 0o044 for path in output.iterdir())  # colleagues can read them

    shared = load_experiment(output / "settings.json")
    assert (shared.model.path, shared.model.revision) == ("owner/tiny", commit)
    original = load_experiment(finished_once.folder / "results/small/settings.json")
    assert shared.model_copy(update={"model": original.model}) == original

    prompts = finished_once.folder / "results/small/part1/turn1/prompts.parquet"
    texts = [prompt.text for prompt in records.read(prompts, Prompt)]
    with_adapter = greedy(finished_once, prompts, tmp_path / "with.parquet", ADAPTER)
    assert with_adapter != greedy(finished_once, prompts, tmp_path / "without.parquet")
    empty.mkdir()
    loaded = subprocess.run(
        [sys.executable, "-c", LOAD, "me/adapter", str(N_TOKENS)],
        input=json.dumps(texts), cwd=empty, env=hub.environment(tmp_path / "home"),
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert loaded.returncode == 0, loaded.stderr
    assert list(map(json.loads, loaded.stdout.splitlines())) == with_adapter


def test_the_card_says_what_the_report_says(finished_once: Checkout, hub: Hub, tmp_path: Path):
    output = tmp_path / "published"
    done = publish(finished_once, hub, tmp_path / "home", "--output", str(output), "--base", "owner/tiny")
    assert done.returncode == 0, done.stderr
    _, metadata, card = (output / "README.md").read_text().split("---\n", 2)
    assert yaml.safe_load(metadata)["base_model"] == "owner/tiny"
    assert {"tokenizer.json", "chat_template.jinja"} <= {path.name for path in output.iterdir()}
    assert "this adapter is its `trained`. The arms that use it: `refine-trained`." in card
    assert TINY not in card
    report = (finished_once.folder / "results/small.md").read_text()
    answer = report.split("\n\n")[1]
    limits = report.partition("\n## Limitations\n")[2].partition("\n## ")[0].strip()
    assert answer in card
    assert len(limits) > 100
    assert limits in card
    assert "transform(" in card.partition("## An example")[2]  # a program that it wrote
    assert load_template(str(output / "wording")) == load_template("compact")
    assert set(re.findall(r"\]\((?!https://)[^)]*", card)) == set()  # no link into a folder that is not there
    assert "No license: none was named" in card and "license" not in yaml.safe_load(metadata)
    code = card.partition("```python\n")[2].partition("```")[0].replace("max_new_tokens=512", "max_new_tokens=2")
    hub.add("model", "owner/tiny", files_of(Path(TINY)))
    variables = hub.environment(tmp_path / "home")
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=output, env=variables, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_what_cannot_be_published_says_what_to_do(finished_once: Checkout, hub: Hub, tmp_path: Path, wording: Wording):
    output = str(tmp_path / "published")

    def refused(*flags: str, token: str = "") -> str:
        done = publish(finished_once, hub, tmp_path / "home", "--output", output, *flags, HF_TOKEN=token)
        assert done.returncode == 1
        message = done.stderr.splitlines()[-1].replace(str(finished_once.folder), "<checkout>")
        return message.replace(output, "<output>").replace(hub.address, "<hub>")

    wording(refused())
    wording(refused("--base", "tiny"))
    wording(refused("--base", "owner/tiny", "--repository", "me/adapter"))
    assert Path(output, "README.md").exists()  # what was written is complete
    wording(refused("--base", "owner/tiny", "--public"))
    wording(refused("--base", "owner/tiny", "--repository", "adapter"))
    wording(refused("--base", "owner/tiny"))  # it was published before
    hub.add("model", "me/public", {})
    wording(refused("--base", "owner/tiny", "--repository", "me/public", "--overwrite", token=TOKEN))
    assert not hub.commits["model", "me/public", "main"]


@pytest.mark.parametrize("damage", ["cut", "nan", "first layer alone"])
def test_damaged_weights_are_not_published(damage: str, finished_once: Checkout, hub: Hub, tmp_path: Path):
    checkout = finished_once.clone(tmp_path / "checkout")
    weights = checkout.folder / ADAPTER / "adapter_model.safetensors"
    if damage == "cut":
        weights.write_bytes(weights.read_bytes()[:5000])
    else:
        matrices = load_file(weights)
        if damage == "nan":
            next(iter(matrices.values()))[0, 0] = float("nan")
        else:
            matrices = {name: matrix for name, matrix in matrices.items() if ".layers.0." in name}
        save_file(matrices, weights)
    done = publish(checkout, hub, tmp_path / "home", "--output", "published", "--base", "owner/tiny")
    assert done.returncode == 1 and "adapter_model.safetensors: " in done.stderr
    assert not (tmp_path / "home/published").exists()


def test_a_repository_that_is_there_is_overwritten_only_if_asked(finished_once: Checkout, hub: Hub, tmp_path: Path):
    hub.add("model", "me/public", {"README.md": b"mine"})
    flags = ["--output", "published", "--base", "owner/tiny", "--repository", "me/public", "--public"]
    done = publish(finished_once, hub, tmp_path / "home", *flags, HF_TOKEN=TOKEN)
    assert done.returncode == 1 and "is there already, and public" in done.stderr and "--overwrite" in done.stderr
    assert hub.commits["model", "me/public", "main"] == {"README.md": b"mine"}
    done = publish(finished_once, hub, tmp_path / "home", *flags, "--overwrite", HF_TOKEN=TOKEN)
    assert done.returncode == 0, done.stderr
