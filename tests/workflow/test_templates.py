"""An experiment with a learned template: its folder is an input of the rules that write prompts."""

import json
from pathlib import Path
from typing import Any

import pytest
from checkout import Checkout

from arc_refinery.domains.arc.prompts import COLOR_WORDS
from arc_refinery.domains.arc.records import Prompt
from arc_refinery.records import read

pytestmark = pytest.mark.snakemake

PROMPTS = "results/small/heldout/turn1/prompts.parquet"


@pytest.fixture(scope="module")
def learned(pristine: Checkout, tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """A checkout with a template that its own command learned from two made-up rows."""
    grids = ["Red Blue\nBlack Black", "Blue", "Pink", "Pink Pink", "Gray\nGray", "Red", "Green"]
    rows = []
    for words in (grids, [*grids[::-1], "Blue", "Red"]):
        pairs = "\n".join(
            f"From\n{before}\nto\n{wanted}\n" for before, wanted in zip(words[:-1:2], words[1::2], strict=True)
        )
        user = f"Learn this.\n\n{pairs}\nAnd now\n{words[-1]}"
        rows.append([{"role": "user", "content": user}, {"role": "assistant", "content": f"So be it: {words[0]}"}])
    checkout = pristine.clone(tmp_path_factory.mktemp("learned") / "checkout")
    folder = checkout.folder / "results"
    folder.mkdir(exist_ok=True)
    (folder / "rows.jsonl").write_text("".join(json.dumps({"messages": row}) + "\n" for row in rows))
    done = checkout.run(
        "arc-refinery", "prompts", "learn", "--messages", "results/rows.jsonl", "--output", "results/mine"
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "results/mine: the template fits 2 of 2 rows of results/rows.jsonl",
        "2 of their answers start with the assistant prefix 'So be it:'",
    ]
    return checkout


def change(content: dict[str, Any]) -> None:
    content["model"]["template"] = "results/mine"


def test_prompts_are_written_with_the_template_and_anew_when_it_is_edited(learned: Checkout):
    wanted = [PROMPTS, "--configfile", learned.change(change, name="templates")]
    done = learned.snakemake("--cores", "1", *wanted)
    assert done.returncode == 0, done.stderr
    prompt = next(read(learned.folder / PROMPTS, Prompt))
    first = "\n".join(" ".join(COLOR_WORDS[cell] for cell in row) for row in prompt.detail.train[0].input.tolist())
    assert prompt.text.startswith(f"<|user|>Learn this.\n\nFrom\n{first}\nto\n")
    assert prompt.text.endswith("<|assistant|>So be it:")
    assert not learned.planned(*wanted)
    (learned.folder / "results/mine/pair.txt").write_text("Out of\n{input}\ncomes\n{output}\n")
    assert learned.planned(*wanted)["first_prompts"] == 1
    assert learned.snakemake("--cores", "1", *wanted).returncode == 0
    assert next(read(learned.folder / PROMPTS, Prompt)).text.startswith(f"<|user|>Learn this.\n\nOut of\n{first}\n")


def test_a_folder_that_is_not_there_ends_with_one_message_before_any_job(fresh: Checkout):
    def missing(content: dict[str, Any]) -> None:
        content["model"]["template"] = "templates/mine"

    path = fresh.change(missing, name="missing")
    done = fresh.snakemake("--cores", "1", "--configfile", path)
    assert done.returncode != 0
    (message,) = [line for line in done.stderr.splitlines() if "model.template" in line]
    assert path in message and str(Path("templates/mine")) in message and "prompts learn" in message
    assert "Traceback" not in done.stderr
