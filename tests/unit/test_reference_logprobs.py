"""Log-probabilities of the tasks' own programs, and how the report compares own results with controls by them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from adapters import make_adapter
from checkout import ROOT, TINY
from experiments import do
from factories import make_grid, make_prompt, make_task, with_detail
from messages import Wording
from peft import PeftModel
from transformers import AutoModelForCausalLM

from arc_refinery import records
from arc_refinery.arc.augment import Augmentation
from arc_refinery.arc.tasks import Pair, Task
from arc_refinery.branch_files import BranchFiles
from arc_refinery.config import ConfigError, validate_experiment
from arc_refinery.domains.arc.config import ArcExperiment
from arc_refinery.domains.arc.records import Prompt
from arc_refinery.errors import InputError
from arc_refinery.models.tokenizers import load_tokenizer
from arc_refinery.records import RecordError, ReferenceLogprob
from arc_refinery.refining import inputs
from arc_refinery.refining.config import PromptedModel
from arc_refinery.refining.report.rows import reference_logprobs_by_parent
from arc_refinery.sampling import given_answers
from arc_refinery.sampling.backends import Decoding, Request
from arc_refinery.sampling.given_answers import GivenAnswer, answer_logprobs
from arc_refinery.sampling.transformers_sampler import TransformersSampler

MODEL = PromptedModel(path=TINY, template="compact", window=1024)
TOKENIZER = load_tokenizer(TINY)
SHOWN = [f"<|user|>\ninput 1x2\n1 {a}{b}\noutput 1x2\n1 {b}{a}<|assistant|>" for a, b in ("12", "30", "45")]


def ids_of(text: str) -> list[int]:
    ids: list[int] = TOKENIZER(text, add_special_tokens=False)["input_ids"]
    return ids


def by_hand(network: Any, prompt: Sequence[int], answer: Sequence[int]) -> float:
    """The whole text through the network, and a sum over the answer's tokens in Python."""
    with torch.no_grad():
        logprobs = network(torch.tensor([[*prompt, *answer]])).logits[0].log_softmax(-1)
    return sum(float(logprobs[len(prompt) + number - 1, token]) for number, token in enumerate(answer))


# The log-probability of a given answer


@pytest.mark.model
@pytest.mark.usefixtures("on_a_cpu")
@pytest.mark.parametrize("has_adapter", [False, True])
@pytest.mark.parametrize("n_together", [given_answers.TOKENS_TOGETHER, 90, 0])
def test_an_answer_has_the_logprob_that_the_sampler_reports_for_it(
    n_together: int, has_adapter: bool, tiny_network: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapter = make_adapter(tmp_path / "adapter", TINY) if has_adapter else None
    monkeypatch.setattr(given_answers, "TOKENS_TOGETHER", n_together)
    sampler = TransformersSampler(MODEL, adapter, Decoding(0.0, 1.0, 24), TOKENIZER)
    requests = [Request(text, text, ids_of(text), 1, 0) for text in SHOWN]
    samples = [sample for batch in sampler.sample(requests) for sample in next(iter(batch.values()))]
    given = [GivenAnswer(ids_of(text), sample.ids) for text, sample in zip(SHOWN, samples, strict=True)]
    logprobs = list(answer_logprobs(MODEL, adapter, given))
    assert logprobs == pytest.approx([sample.logprob for sample in samples], abs=1e-4)
    network = tiny_network
    if adapter:
        network = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(TINY, dtype=torch.float32), adapter)
        network.eval()
    assert logprobs == pytest.approx([by_hand(network, *text) for text in given], abs=1e-4)


def test_texts_are_read_together_up_to_a_number_of_tokens() -> None:
    given = [GivenAnswer([0] * n, [1]) for n in (3, 5, 9, 1)]  # 4, 6, 10 and 2 tokens

    def sizes(largest: int) -> list[int]:
        return [len(batch) for batch in given_answers.batches(given, largest)]

    assert sizes(10) == [2, 1, 1] and sizes(9) == [1, 1, 1, 1] and sizes(22) == [4]
    assert list(given_answers.batches([], 10)) == []


# The stage

FLIP = "from common import *\n\n\ndef main(grid):\n    return np.fliplr(grid)\n"
FLIPPED = "```python\nfrom common import *\n\n\ndef transform(grid):\n    return np.fliplr(grid)\n```"
PAIR = Pair(make_grid("12"), make_grid("21"))


def a_task(name: str, source: str = FLIP) -> Task:
    return make_task(name, train=(PAIR, PAIR), test=(PAIR,), origin="barc", source=source)


def second(task: str, number: int, text: str = SHOWN[0], **changes: Any) -> Prompt:
    name = f"{task}/refine-turn2-{number:03d}"
    return make_prompt(a_task(task), prompt_id=name, turn=2, text=text, parent_id=f"{task}/turn1-000/000", **changes)


def scored(folder: Path, tasks: Sequence[Task], prompts: Sequence[Prompt], window: int = 1024) -> list[Any]:
    records.write(folder / "tasks.parquet", Task, tasks, 0, {})
    records.write(folder / "prompts.parquet", Prompt, prompts, 0, {})
    output = folder / "reference.parquet"
    settings = {"model": {"path": TINY, "template": "compact", "window": window}, "sandbox": {}}
    do(
        "reference_logprobs",
        settings,
        tasks=folder / "tasks.parquet",
        prompts=folder / "prompts.parquet",
        output=output,
    )
    return list(records.read(output, ReferenceLogprob))


@pytest.mark.model
@pytest.mark.usefixtures("on_a_cpu")
def test_each_prompt_that_a_tasks_program_answers_has_one_row(tiny_network: Any, tmp_path: Path) -> None:
    begun = "```python\nfrom common import *"
    prefixed = ({"role": "user", "content": "?"}, {"role": "assistant", "content": begun})
    prompts = [
        second("a", 0),
        second("b", 0, n_predictions=3),
        second("b", 1),  # the same prompt again
        replace(second("b", 2), parent_id="b/turn1-000/001"),
        second("b", 3, text=SHOWN[1] + begun, messages=prefixed),
        second("b", 4, text=SHOWN[2] * 9),  # no room
        with_detail(second("b", 5, text=SHOWN[2]), augmentation=Augmentation(1, False)),
    ]
    answer = [*ids_of(FLIPPED), TOKENIZER.eos_token_id]
    window = len(ids_of(SHOWN[0])) + len(answer)
    rows = scored(tmp_path, [a_task("a", source=""), a_task("b")], prompts, window)
    assert [(row.prompt_id[-3:], row.task_id, row.parent_id[-1:]) for row in rows] == [
        *(("000", "b", "0"), ("002", "b", "1"), ("003", "b", "0"))
    ]
    rest = [*ids_of(FLIPPED.removeprefix(begun)), TOKENIZER.eos_token_id]
    assert [row.n_tokens for row in rows] == [len(answer), len(answer), len(rest)]
    whole, continued = (
        by_hand(tiny_network, ids_of(SHOWN[0]), answer),
        by_hand(tiny_network, ids_of(SHOWN[1] + begun), rest),
    )
    assert [row.logprob for row in rows] == pytest.approx([whole, whole, continued], abs=1e-3)
    notes = records.notes(tmp_path / "reference.parquet")
    assert notes == {"n_without_program": 2, "n_too_long": 1}


def test_tasks_without_right_programs_are_refused(tmp_path: Path, wording: Wording) -> None:
    wrong = FLIP.replace("np.fliplr(grid)", "grid")
    with pytest.raises(InputError) as refusal:
        scored(tmp_path, [a_task("a", source=""), a_task("b", wrong)], [second("a", 0)])
    wording(refusal.value)
    assert "tasks.parquet: no task has a right program" in str(refusal.value)
    assert not (tmp_path / "reference.parquet").exists()


# The config


def experiment(arms: Mapping[str, Mapping[str, Any]], augments: bool = False, **evaluation: Any) -> ArcExperiment:
    """Arms by their second turn, trained with three seeds."""
    content = yaml.safe_load((ROOT / "tests/refining.yaml").read_text())
    content["arc"] = {"use_data_augmentation": augments}
    content["training"] |= {"seeds": [0, 1, 2], "sft": None, "grpo": {"learning_rate": 1e-3}}
    content["evaluation"] |= {
        "sets": [{"name": "small", "source": "generator", "n_tasks": 4}],
        "arms": [
            {"name": name, "turns": [{"n_predictions": 8}, {"n_predictions": 8, **turn}]} for name, turn in arms.items()
        ],
        "primary": None,
        "reference_logprobs": True,
        **evaluation,
    }
    return validate_experiment(content, "test", ArcExperiment)


ARMS: dict[str, dict[str, Any]] = {
    "base": {},
    "base-twin": {"feedback": "twin"},
    "base-none": {"feedback": "none"},
    "trained": {"adapter": "trained"},
    "trained-twin": {"adapter": "trained", "feedback": "twin"},
}


def test_augmented_tasks_have_no_program_of_their_own(wording: Wording) -> None:
    with pytest.raises(ConfigError) as refusal:
        experiment(ARMS, augments=True)
    wording(refusal.value)
    assert "evaluation.reference_logprobs" in str(refusal.value)


def test_the_report_reads_the_file_of_each_second_turn_if_the_config_asks_for_it() -> None:
    names = [arm.name for arm in experiment(ARMS).arms]
    expected = [f"<results>/small/{name}-turn2/reference.parquet" for name in names]
    assert [path for path in inputs.report_inputs(experiment(ARMS)) if "reference" in path] == expected
    assert not any("reference" in path for path in inputs.report_inputs(experiment(ARMS, reference_logprobs=False)))


def test_the_table_of_attempts_has_a_mean_per_parent(tmp_path: Path) -> None:
    files = BranchFiles(tmp_path / "base-turn2", 1, 1, 1)
    records.write(files.prompts, Prompt, [], 0, {})
    scores = [("a/1", -4.0, 8), ("b/1", -6.0, 6), ("b/1", -3.0, 6)]  # b has two texts with one parent
    rows = [ReferenceLogprob(f"p{index}", score[0][0], *score) for index, score in enumerate(scores)]
    records.write(files.reference, ReferenceLogprob, rows, 0, {}, made_from=[files.prompts])
    assert reference_logprobs_by_parent(files).to_dict() == {"a/1": -0.5, "b/1": -0.75}
    records.write(files.prompts, Prompt, [second("a", 0)], 0, {})
    with pytest.raises(RecordError, match="was made from other files"):
        reference_logprobs_by_parent(files)
