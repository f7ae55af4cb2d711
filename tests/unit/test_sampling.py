"""Shards of prompts, resuming one, and what is refused before a model is loaded."""

import importlib.util
import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast, get_args

import pytest
from adapters import make_adapter
from checkout import TINY
from factories import ARC, make_prompt, make_task
from messages import Wording

from arc_refinery.arc.augment import Augmentation
from arc_refinery.config import BACKENDS, BackendName, ModelConfig
from arc_refinery.domains.arc.records import Attempt, Prompt
from arc_refinery.errors import InputError, NotFiniteError
from arc_refinery.models.tokenizers import load_tokenizer
from arc_refinery.refining.config import PromptedModel
from arc_refinery.refining.stages import attempts as attempts_module
from arc_refinery.refining.stages.attempts import sample_shard, shard_of
from arc_refinery.sampling import checks
from arc_refinery.sampling.backends import Decoding, Report, Request, Sample, Sampled
from arc_refinery.sampling.checks import ADAPTER_WEIGHTS
from arc_refinery.sampling.shard import Entry, progress_path, resumed

MODEL = PromptedModel(path=TINY, template="compact", window=2048, n_threads=1)
DECODING = Decoding(temperature=1.0, top_p=0.95, max_output_tokens=24, seed=7)
TOKENIZER = load_tokenizer(TINY)
END = TOKENIZER.eos_token_id


@pytest.fixture
def prompts() -> list[Prompt]:
    """Two prompts, of four completions each, for each of three tasks."""
    return [
        make_prompt(
            make_task(task),
            prompt_id=f"{task}/turn1-00{number}",
            augmentation=Augmentation(number, False),
            train_order=(number, 1 - number),
            text=f"task {task}, prompt {number}",
            n_tokens=100 + number,
            n_predictions=4,
        )
        for task in "abc"
        for number in range(2)
    ]


def test_every_backend_has_a_sampler_but_those_without_a_model_here() -> None:
    assert BACKENDS.keys() == set(get_args(BackendName))
    samplers = {name: backend.sampler.partition(":")[0] for name, backend in BACKENDS.items() if backend.sampler}
    assert all(map(importlib.util.find_spec, samplers.values()))
    assert BACKENDS.keys() - samplers.keys() == {"endpoint", "answers"}


# shards


def bare(prompt_id: str, task_id: str) -> Prompt:
    return make_prompt(make_task(task_id), prompt_id=prompt_id)


def test_shards_are_disjoint_keep_tasks_whole_and_hold_every_prompt_in_order() -> None:
    listed = [bare(f"{task}{number}", task) for task in "abcde" for number in range(2)]
    parts = [[prompt.prompt_id for prompt in shard_of(listed, number, 3)] for number in range(3)]
    assert parts == [["a0", "a1", "d0", "d1"], ["b0", "b1", "e0", "e1"], ["c0", "c1"]]


def test_a_task_whose_prompts_are_apart_is_not_split() -> None:
    listed = [bare(name, name[0]) for name in ("a0", "b0", "a1", "c0", "b1", "a2")]
    parts = [[prompt.prompt_id for prompt in shard_of(listed, number, 2)] for number in range(2)]
    assert parts == [["a0", "a1", "c0", "a2"], ["b0", "b1"]]


def test_tasks_that_are_sampled_together_are_in_one_shard() -> None:
    listed = [bare(f"{task}{number}", task) for task in "abcde" for number in range(2)]
    parts = [[prompt.task_id for prompt in shard_of(listed, number, 2, tasks_per_batch=2)] for number in range(2)]
    assert ["".join(part) for part in parts] == ["aabbee", "ccdd"]


def test_more_shards_than_tasks_leave_some_empty() -> None:
    assert [len(shard_of([bare("a", "a"), bare("b", "b")], number, 4)) for number in range(4)] == [1, 1, 0, 0]


@pytest.mark.parametrize("number", [-1, 3])
def test_a_shard_that_does_not_exist_is_refused(number: int) -> None:
    with pytest.raises(ValueError, match=f"shard {number} of 3"):
        shard_of([bare("a", "a")], number, 3)


# one shard, interrupted and resumed


class Evicted(Exception):
    pass


class Watched:
    """A sampler that makes samples up; it notes the prompts that it gets and may be evicted after some."""

    ends = frozenset([END])

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.evicted_after = math.inf

    def sample(self, requests: Sequence[Request]) -> Iterator[Sampled]:
        for request in requests:
            if len(self.asked) >= self.evicted_after:
                raise Evicted
            self.asked.append(request.request_id)
            yield {request.request_id: samples_of(request.request_id, request.n)}


def samples_of(prompt_id: str, n: int) -> list[Sample]:
    texts = [f"{prompt_id}: é\n{number}" for number in range(n)]
    samples = [Sample(TOKENIZER(text)["input_ids"], "length", -number / 3) for number, text in enumerate(texts)]
    return [replace(samples[0], ids=[*samples[0].ids, END], finish_reason="stop"), *samples[1:]]


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Watched:
    watched = Watched()
    monkeypatch.setattr(attempts_module, "open_sampler", lambda *_: watched)
    return watched


def run(prompts: list[Prompt], output: Path, decoding: Decoding = DECODING) -> list[Attempt]:
    return cast(list[Attempt], list(sample_shard(ARC, prompts, MODEL, None, decoding, output)))


def interrupted(watched: Watched, prompts: list[Prompt], output: Path, after: int) -> None:
    """A job that was evicted after some prompts; the next one is not."""
    watched.evicted_after = after
    with pytest.raises(Evicted):
        run(prompts, output)
    watched.evicted_after = math.inf
    watched.asked.clear()


def test_a_batch_of_tasks_is_the_same_in_every_shard(
    prompts: list[Prompt], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups: dict[str, str] = {}

    class Grouping(Watched):
        def sample(self, requests: Sequence[Request]) -> Iterator[Sampled]:
            groups.update({request.request_id: request.group for request in requests})
            return super().sample(requests)

    monkeypatch.setattr(attempts_module, "open_sampler", lambda *_: Grouping())
    together: list[list[list[str]]] = []
    for n_shards in (1, 2):
        groups.clear()
        for shard in range(n_shards):
            part = shard_of(prompts, shard, n_shards, tasks_per_batch=2)
            before = dict(groups)
            list(sample_shard(ARC, part, MODEL, None, DECODING, tmp_path / f"{n_shards}-{shard}.parquet", 2))
            for name in groups.keys() - before.keys():
                groups[name] = f"{shard} {groups[name]}"
        batches = [[name for name in groups if groups[name] == group] for group in dict.fromkeys(groups.values())]
        together.append(sorted(batches))
    assert together[0] == together[1]
    assert [len({name.split("/")[0] for name in batch}) for batch in together[0]] == [2, 1]


def test_attempts_carry_the_lineage_of_their_prompts(watched: Watched, prompts: list[Prompt], tmp_path: Path) -> None:
    attempts = run(prompts, tmp_path / "out.parquet")
    assert watched.asked == [prompt.prompt_id for prompt in prompts]
    assert len(attempts) == 6 * 4
    sources = [prompt for prompt in prompts for _ in range(4)]
    for number, (attempt, prompt) in enumerate(zip(attempts, sources, strict=True)):
        assert attempt.attempt_id == f"{prompt.prompt_id}/00{number % 4}"
        assert (attempt.prompt_id, attempt.task_id, attempt.turn) == (prompt.prompt_id, prompt.task_id, 1)
        assert (attempt.detail.augmentation, attempt.detail.train_order) == (
            prompt.detail.augmentation,
            prompt.detail.train_order,
        )
        assert (attempt.n_prompt_tokens, attempt.model, attempt.adapter) == (prompt.n_tokens, MODEL.path, "")
        assert (attempt.seed, attempt.temperature, attempt.top_p) == (7, 1.0, 0.95)


def test_attempts_hold_what_the_sampler_gave(watched: Watched, prompts: list[Prompt], tmp_path: Path) -> None:
    texts = [f"{prompt.prompt_id}: é\n{number}" for prompt in prompts for number in range(4)]
    samples = [sample for prompt in prompts for sample in samples_of(prompt.prompt_id, 4)]
    for attempt, text, sample in zip(run(prompts, tmp_path / "out.parquet"), texts, samples, strict=True):
        assert attempt.completion == text
        assert attempt.n_tokens == len(sample.ids)
        assert (attempt.finish_reason, attempt.logprob) == (sample.finish_reason, sample.logprob)


def test_samples_without_a_probability_are_refused_and_not_kept(
    watched: Watched, prompts: list[Prompt], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = [Sample([END], "stop", math.nan)] * 4
    monkeypatch.setattr(watched, "sample", lambda requests: iter([{requests[0].request_id: broken}]))
    with pytest.raises(NotFiniteError, match=MODEL.path):
        run(prompts, tmp_path / "out.parquet")
    assert prompts[0].prompt_id not in progress_path(tmp_path / "out.parquet").read_text()


@pytest.mark.parametrize("after", [1, 4, 5])
def test_a_resumed_job_gives_what_an_undisturbed_one_would_have(
    watched: Watched, prompts: list[Prompt], tmp_path: Path, after: int
) -> None:
    undisturbed = run(prompts, tmp_path / "undisturbed.parquet")
    watched.asked.clear()
    interrupted(watched, prompts, tmp_path / "out.parquet", after)
    assert run(prompts, tmp_path / "out.parquet") == undisturbed
    assert watched.asked == [prompt.prompt_id for prompt in prompts[after:]]  # nothing is sampled twice


def test_a_job_that_is_interrupted_twice_resumes_twice(watched: Watched, prompts: list[Prompt], tmp_path: Path) -> None:
    output = tmp_path / "out.parquet"
    interrupted(watched, prompts, output, 2)
    interrupted(watched, prompts, output, 3)
    run(prompts, output)
    assert watched.asked == [prompts[5].prompt_id]


def test_a_finished_job_samples_nothing_again(watched: Watched, prompts: list[Prompt], tmp_path: Path) -> None:
    output = tmp_path / "out.parquet"
    first = run(prompts, output)
    watched.asked.clear()
    assert run(prompts, output) == first
    assert watched.asked == []


def test_a_half_written_last_line_is_ignored(watched: Watched, prompts: list[Prompt], tmp_path: Path) -> None:
    undisturbed = run(prompts, tmp_path / "undisturbed.parquet")
    watched.asked.clear()
    output = tmp_path / "out.parquet"
    interrupted(watched, prompts, output, 3)
    progress = progress_path(output)
    *finished, last = progress.read_text().splitlines(keepends=True)
    progress.write_text("".join(finished) + last[: len(last) // 2])
    assert run(prompts, output) == undisturbed
    assert watched.asked == [prompt.prompt_id for prompt in prompts[2:]]  # the third one is sampled again
    for line in progress.read_text().splitlines():
        json.loads(line)  # the next resume can read it as well


@pytest.mark.parametrize("damage", ["\0" * 40, "garbage", "[1]", "[" * 100_000, "again"])
def test_entries_from_a_damaged_line_on_are_sampled_again(
    watched: Watched, prompts: list[Prompt], tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    undisturbed = run(prompts, tmp_path / "undisturbed.parquet")
    watched.asked.clear()
    output = tmp_path / "out.parquet"
    interrupted(watched, prompts, output, 4)
    header, first, _, *rest = progress_path(output).read_text().splitlines()
    progress_path(output).write_text(
        "".join(f"{line}\n" for line in (header, first, first if damage == "again" else damage, *rest))
    )
    watched.asked.clear()
    assert run(prompts, output) == undisturbed
    assert watched.asked == [prompt.prompt_id for prompt in prompts[1:]]
    assert "line 3 of 5 is damaged; it and what follows are computed again" in caplog.text


@pytest.mark.parametrize("n_bytes", [0, 10])
def test_a_progress_file_that_ends_inside_its_head_is_started_anew(
    watched: Watched, prompts: list[Prompt], tmp_path: Path, n_bytes: int
) -> None:
    output = tmp_path / "out.parquet"
    interrupted(watched, prompts, output, 2)
    progress_path(output).write_text(progress_path(output).read_text()[:n_bytes])
    assert len(run(prompts, output)) == 24
    assert len(watched.asked) == 6


@pytest.mark.parametrize("change", [{"seed": 8}, {"temperature": 0.5}, {"top_p": 0.5}, {"max_output_tokens": 23}])
def test_progress_of_other_decoding_is_not_taken_up(
    watched: Watched, prompts: list[Prompt], tmp_path: Path, change: dict[str, Any]
) -> None:
    interrupted(watched, prompts, tmp_path / "out.parquet", 3)
    run(prompts, tmp_path / "out.parquet", replace(DECODING, **change))
    assert len(watched.asked) == 6


@pytest.mark.parametrize("change", [{"gpu_memory_utilization": 0.5}, {"template": "words"}])
def test_progress_is_taken_up_where_nothing_changed_that_decides_completions(
    watched: Watched, prompts: list[Prompt], tmp_path: Path, change: dict[str, float | str]
) -> None:
    interrupted(watched, prompts, tmp_path / "out.parquet", 3)
    list(sample_shard(ARC, prompts, MODEL.model_copy(update=change), None, DECODING, tmp_path / "out.parquet"))
    assert len(watched.asked) == 3


def test_progress_of_other_prompts_is_not_taken_up(watched: Watched, prompts: list[Prompt], tmp_path: Path) -> None:
    interrupted(watched, prompts, tmp_path / "out.parquet", 3)
    changed = [replace(prompts[0], text=prompts[1].text), *prompts[1:]]
    run(changed, tmp_path / "out.parquet")
    assert len(watched.asked) == 6


@pytest.mark.model
def test_progress_of_another_adapter_is_not_taken_up(watched: Watched, prompts: list[Prompt], tmp_path: Path) -> None:
    adapter = tmp_path / "adapter"
    output = tmp_path / "out.parquet"
    for seed in (1, 2, 2):
        make_adapter(adapter, MODEL.path, seed)
        attempts = list(sample_shard(ARC, prompts[:2], MODEL, adapter, DECODING, output))
    assert len(watched.asked) == 2 + 2 + 0
    assert {attempt.adapter for attempt in attempts} == {str(adapter)}


def test_progress_lies_outside_the_path_of_the_output(tmp_path: Path) -> None:
    assert progress_path(tmp_path / "attempts/002.parquet") == tmp_path / "attempts/.progress/002.jsonl"


class Backwards(Watched):
    """A sampler that finishes the last prompt first."""

    def sample(self, requests: Sequence[Request]) -> Iterator[Sampled]:
        return super().sample(requests[::-1])


def test_attempts_are_in_the_order_of_prompts_whatever_finishes_first(
    watched: Watched, prompts: list[Prompt], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = run(prompts, tmp_path / "forwards.parquet")
    backwards = Backwards()
    monkeypatch.setattr(attempts_module, "open_sampler", lambda *_: backwards)
    interrupted(backwards, prompts, tmp_path / "backwards.parquet", 2)
    assert run(prompts, tmp_path / "backwards.parquet") == expected
    assert backwards.asked == [prompt.prompt_id for prompt in prompts[3::-1]]


def test_every_prompt_is_on_disk_before_the_next_one_is_sampled(
    watched: Watched, prompts: list[Prompt], tmp_path: Path
) -> None:
    output = tmp_path / "out.parquet"
    watched.evicted_after = 3
    with pytest.raises(Evicted):
        run(prompts, output)
    lines = [json.loads(line) for line in progress_path(output).read_text().splitlines()]
    assert [list(line) for line in lines[1:]] == [[name] for name in watched.asked]


class InPairs(Watched):
    """A sampler that samples two prompts together."""

    def sample(self, requests: Sequence[Request]) -> Iterator[Sampled]:
        one_by_one = super().sample(requests)
        while first := next(one_by_one, None):
            yield first | next(one_by_one, {})


def test_prompts_that_were_sampled_together_are_resumed_together(
    prompts: list[Prompt], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if the job had been killed while it wrote its second line."""
    first, second = InPairs(), InPairs()
    monkeypatch.setattr(attempts_module, "open_sampler", lambda *_: first)
    expected = run(prompts, tmp_path / "out.parquet")
    progress = progress_path(tmp_path / "out.parquet")
    progress.write_text("\n".join(progress.read_text().splitlines()[:2]) + '\n{"half')
    monkeypatch.setattr(attempts_module, "open_sampler", lambda *_: second)
    assert run(prompts, tmp_path / "out.parquet") == expected
    assert second.asked == [prompt.prompt_id for prompt in prompts[2:]]


def test_a_shard_that_was_wholly_sampled_starts_no_engine(
    watched: Watched, prompts: list[Prompt], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = run(prompts, tmp_path / "out.parquet")
    no_engine(monkeypatch)
    assert run(prompts, tmp_path / "out.parquet") == first
    assert run([], tmp_path / "empty.parquet") == []


# what is refused before a model is loaded or an engine started


def no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(*_: object) -> None:
        raise AssertionError("an engine was started")

    monkeypatch.setattr(attempts_module, "open_sampler", start)


def refused(
    prompts: list[Prompt], folder: Path, monkeypatch: pytest.MonkeyPatch, adapter: Path | None = None, **changed: Any
) -> str:
    """The message with which sampling is refused."""
    no_engine(monkeypatch)
    model = MODEL.model_copy(update=changed)
    with pytest.raises(InputError) as refusal:
        list(sample_shard(ARC, prompts, model, adapter, DECODING, folder / "out.parquet"))
    assert not progress_path(folder / "out.parquet").exists()
    return str(refusal.value)


def test_a_window_beyond_the_models_own_is_refused(
    prompts: list[Prompt], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    message = refused(prompts, tmp_path, monkeypatch, window=2049)
    assert f"{MODEL.path}: the window (--max-model-len) is 2049 tokens; expected at most 2048" in message


@pytest.mark.model
@pytest.mark.parametrize("missing", ["adapter_config.json", "adapter_model.safetensors"])
def test_a_folder_that_misses_a_file_of_an_adapter_is_refused(
    prompts: list[Prompt], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    adapter = make_adapter(tmp_path / "adapter", MODEL.path)
    (adapter / missing).unlink()
    assert refused(prompts, tmp_path, monkeypatch, adapter).startswith(f"{adapter / missing}: no such file")


@pytest.mark.model
@pytest.mark.parametrize("name", ["adapter_config.json", "adapter_model.safetensors"])
def test_a_damaged_adapter_is_refused(
    prompts: list[Prompt], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    adapter = make_adapter(tmp_path / "adapter", MODEL.path)
    (adapter / name).write_bytes((adapter / name).read_bytes()[:50])
    message = refused(prompts, tmp_path, monkeypatch, adapter)
    assert message.startswith(f"{adapter / name}: ")


@pytest.mark.model
@pytest.mark.parametrize(
    ("settings", "saving", "named"),
    [
        ({"modules_to_save": ["lm_head"]}, {}, "(lm_head)"),
        ({}, {"save_embedding_layers": True}, "(lm_head, model.embed_tokens)"),
        ({"target_modules": ["q_proj", "embed_tokens"]}, {}, "(model.embed_tokens)"),
    ],
)
def test_an_adapter_with_whole_modules_is_refused_by_their_names(
    settings: dict[str, Any], saving: dict[str, bool], named: str,
    prompts: list[Prompt], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    network = AutoModelForCausalLM.from_pretrained(MODEL.path)
    adapted = get_peft_model(network, LoraConfig(**{"r": 2, "target_modules": ["q_proj"]} | settings))
    adapted.save_pretrained(tmp_path / "adapter", **saving)
    assert f"whole modules or embeddings {named}" in refused(prompts, tmp_path, monkeypatch, tmp_path / "adapter")


@pytest.mark.model
def test_an_adapter_in_a_pickle_is_named(
    prompts: list[Prompt], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = make_adapter(tmp_path / "adapter", MODEL.path) / "adapter_model.safetensors"
    weights.rename(weights.with_suffix(".bin"))
    assert "only adapter_model.bin, a pickle" in refused(prompts, tmp_path, monkeypatch, weights.parent)


@pytest.mark.model
@pytest.mark.parametrize("changed", [{"hidden_size": 256, "head_dim": 64}, {"intermediate_size": 512}, {"n_layers": 7}])
def test_an_adapter_of_another_base_model_is_refused(
    prompts: list[Prompt], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: dict[str, Any]
) -> None:
    changed = {name.replace("n_layers", "num_hidden_layers"): value for name, value in changed.items()}
    adapter = make_adapter(tmp_path / "adapter", MODEL.path, **changed)
    message = refused(prompts, tmp_path, monkeypatch, adapter)
    assert message.startswith(f"{adapter}/adapter_model.safetensors: was made for another base model")
    assert MODEL.path in message


def test_a_backend_or_quantization_that_is_not_installed_is_refused(
    prompts: list[Prompt], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "find_spec", lambda _: None)
    assert "vllm, which is not installed" in refused(prompts, tmp_path, monkeypatch, backend="vllm")
    assert "need bitsandbytes" in refused(prompts, tmp_path, monkeypatch, use_4bit_quantization=True)


def test_a_folder_without_a_model_is_refused(
    prompts: list[Prompt], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    message = refused(prompts, tmp_path, monkeypatch, path=str(tmp_path))
    assert message.startswith(f"{tmp_path}/config.json: cannot be read")


# progress


def test_progress_counts_samples_as_they_end_and_tokens(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    output = tmp_path / "000.parquet"

    def compute(done: Sequence[Entry], report: Report) -> Iterator[Entry]:
        for number in range(len(done), 3):
            report(1, 30)
            report(0, 10)
            yield {f"one-{number}": ["a", "b"], f"other-{number}": ["c"]}

    first = next(resumed(output, {}, None, 9, "attempt", compute))
    caplog.set_level("INFO")
    again = list(resumed(output, {}, None, 9, "attempt", compute))
    assert again[0] == first
    assert "3 of 9 attempts were already done" in caplog.text
    *_, last = capsys.readouterr().err.split("\r")
    assert re.search(r"9/9 .*attempt/s, \d+ tokens/s", last)


def test_other_weights_of_an_adapter_are_other_entries(tmp_path: Path):
    adapter, output = tmp_path / "adapter", tmp_path / "out.parquet"
    adapter.mkdir()
    computed = []

    def compute(done: Sequence[Entry], report: Report) -> Iterator[Entry]:
        if not done:
            computed.append((adapter / ADAPTER_WEIGHTS).read_text())
            yield {"one": [computed[-1]]}

    for weights in ("a", "a", "b"):
        (adapter / ADAPTER_WEIGHTS).write_text(weights)
        assert list(resumed(output, {}, adapter, 1, "attempt", compute)) == [{"one": [weights]}]
    assert computed == ["a", "b"]


def test_the_batch_invariant_mode_is_refused_without_a_gpu(wording: Wording):
    from arc_refinery.sampling.vllm_sampler import open_engine

    model = ModelConfig(path=TINY, window=512, backend="vllm", batch_invariant=True)
    with pytest.raises(InputError) as error:
        open_engine(model, None, seed=0)
    wording(error.value)
