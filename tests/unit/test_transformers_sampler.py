"""Sampling with the shipped model: completions that depend on their task alone, and what transformers would write."""

import json
import resource
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from adapters import make_adapter
from checkout import TINY
from factories import ARC, first_turns
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils.logging import enable_progress_bar

from arc_refinery.barc.generator import ProblemDifficulty, generate_problem
from arc_refinery.barc.tasks import tasks_from_problems
from arc_refinery.domains.arc.prompts import COMPACT
from arc_refinery.domains.arc.records import Prompt
from arc_refinery.domains.arc.sources import GENERATED_EXAMPLES
from arc_refinery.domains.prompts import Renderer
from arc_refinery.models.tokenizers import load_tokenizer
from arc_refinery.refining.config import PromptedModel, Sampling
from arc_refinery.refining.stages import attempts as attempts_module
from arc_refinery.refining.stages.attempts import request_of
from arc_refinery.sampling.backends import Decoding, Request, Sample, Sampled
from arc_refinery.sampling.transformers_sampler import TransformersSampler, batches

MODEL = PromptedModel(path=TINY, template="compact", window=2048, n_threads=1)
DECODING = Decoding(temperature=1.0, top_p=0.95, max_output_tokens=24, seed=7)
TOKENIZER = load_tokenizer(TINY)

pytestmark = [pytest.mark.model, pytest.mark.usefixtures("on_a_cpu")]


@pytest.fixture(scope="module")
def sampler(on_a_cpu: None) -> TransformersSampler:
    return TransformersSampler(MODEL, None, DECODING, TOKENIZER)


def test_loading_writes_no_progress_bar_into_a_log(capfd: pytest.CaptureFixture[str]) -> None:
    enable_progress_bar()
    TransformersSampler(MODEL, None, DECODING, TOKENIZER)
    assert capfd.readouterr().err == ""


def test_memory_of_freed_tensors_is_used_again(sampler: TransformersSampler) -> None:
    torch.ones(2**24 + 2**10)  # 64 MiB, 16,384 pages, and room to align the next tensor
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.ones(2**24)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before < 2000


@pytest.fixture(scope="module")
def prompts(renderer: Renderer) -> list[Prompt]:
    """Two prompts, of four completions each, for each of three tasks."""
    problems = [
        generate_problem(ProblemDifficulty(max_side=4, compositions=0.0), GENERATED_EXAMPLES, "heldout", 2, number)[0]
        for number in range(3)
    ]
    settings = Sampling(batch_size=4, max_output_tokens=24)
    tasks = tasks_from_problems(problems, 4500, 0, Counter())
    return list(first_turns(tasks, 8, settings, COMPACT, renderer))


@pytest.fixture(scope="module")
def samples(sampler: TransformersSampler, prompts: list[Prompt]) -> list[list[Sample]]:
    """The sampler's completions of all prompts."""
    return sampled(sampler, prompts)


def decoded_otherwise(**changes: Any) -> TransformersSampler:
    """The same model with other settings of decoding."""
    return TransformersSampler(MODEL, None, replace(DECODING, **changes), TOKENIZER)


def greedy(network: Any, tokenizer: Any, prompt: Prompt) -> str:
    """A completion by `generate` of transformers."""
    ids = torch.tensor([tokenizer(prompt.text, add_special_tokens=False)["input_ids"]])
    settings = {
        "attention_mask": torch.ones_like(ids),
        "do_sample": False,
        "max_new_tokens": DECODING.max_output_tokens,
    }
    written = network.generate(input_ids=ids, **settings)
    return str(tokenizer.decode(written[0, ids.shape[1] :], skip_special_tokens=True))


def text_of(completion: Sample) -> str:
    return str(TOKENIZER.decode(completion.ids, skip_special_tokens=True))


def sampled(sampler: TransformersSampler, prompts: Sequence[Prompt]) -> list[list[Sample]]:
    """The completions of each prompt; this backend gives them in order."""
    samples: Sampled = {}
    for batch in sampler.sample(
        [request_of(prompt, prompt.task_id, sampler.decoding.seed, TOKENIZER) for prompt in prompts]
    ):
        assert not samples.keys() & batch.keys()
        samples |= batch
    assert list(samples) == [prompt.prompt_id for prompt in prompts]
    return list(samples.values())


def test_a_prompt_has_as_many_completions_as_it_asks_for(sampler: TransformersSampler, prompts: list[Prompt]) -> None:
    few = [replace(prompts[0], n_predictions=1), replace(prompts[1], n_predictions=5)]
    assert [len(completions) for completions in sampled(sampler, few)] == [1, 5]


def test_a_task_gives_the_same_completions_alone_and_after_others(
    sampler: TransformersSampler, prompts: list[Prompt], samples: list[list[Sample]]
) -> None:
    assert sampled(sampler, prompts[2:4]) == samples[2:4]


def test_the_order_of_tasks_does_not_matter(
    sampler: TransformersSampler, prompts: list[Prompt], samples: list[list[Sample]]
) -> None:
    assert sampled(sampler, prompts[4:] + prompts[2:4] + prompts[:2]) == samples[4:] + samples[2:4] + samples[:2]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_prompt_gives_what_it_gives_alone_with_its_keys_repeated(prompts: list[Prompt], temperature: float) -> None:
    """Sums of floats may differ in their last bits."""
    prompts = [replace(prompt, n_predictions=number + 1) for number, prompt in enumerate(prompts)]
    sharing, repeating = (decoded_otherwise(temperature=temperature) for _ in range(2))
    repeating.shares = False
    for batch, alone in zip(sampled(sharing, prompts), sampled(repeating, prompts), strict=True):
        assert [replace(sample, logprob=0) for sample in batch] == [replace(sample, logprob=0) for sample in alone]
        assert [sample.logprob for sample in batch] == pytest.approx([sample.logprob for sample in alone], abs=1e-4)


def test_batches_are_prompts_of_one_task_with_room_for_their_completions(prompts: list[Prompt]) -> None:
    sizes = {"a": 3, "b": 2}
    listed = [
        Request(f"{task}{number}", task, [0] * 10, n=2, seed=0)
        for task, size in sizes.items()
        for number in range(size)
    ]

    def names(largest: int) -> list[list[str]]:
        return [[request.request_id for request in batch] for batch in batches(listed, 5, largest)]

    assert names(60) == [["a0", "a1", "a2"], ["b0", "b1"]]
    assert names(59) == names(40) == [["a0", "a1"], ["a2"], ["b0", "b1"]]
    assert names(39) == names(0) == [["a0"], ["a1"], ["a2"], ["b0"], ["b1"]]
    assert list(batches([], 5, 60)) == []
    listed[2] = replace(listed[2], ids=[0] * 20)  # and so long are all of its batch
    assert names(60) == [["a0", "a1"], ["a2"], ["b0", "b1"]]
    assert names(90) == [["a0", "a1", "a2"], ["b0", "b1"]]
    listed.reverse()
    listed.append(listed.pop(1))  # b1, a2, a1, a0, b0
    assert names(60) == [["b1", "b0"], ["a2", "a1"], ["a0"]]


def test_a_sampler_loaded_again_gives_the_same_completions(prompts: list[Prompt], samples: list[list[Sample]]) -> None:
    assert sampled(TransformersSampler(MODEL, None, DECODING, TOKENIZER), prompts[:2]) == samples[:2]


def test_completions_do_not_depend_on_the_global_random_state(
    sampler: TransformersSampler, prompts: list[Prompt]
) -> None:
    torch.manual_seed(1)
    first = sampled(sampler, prompts[:1])
    torch.manual_seed(2)
    assert sampled(sampler, prompts[:1]) == first


def test_seeds_and_names_of_prompts_give_completions_of_their_own(prompts: list[Prompt]) -> None:
    prompt = replace(prompts[0], n_predictions=16)
    hot = decoded_otherwise(temperature=3.0, top_p=1.0, max_output_tokens=8)
    other_seed = decoded_otherwise(temperature=3.0, top_p=1.0, max_output_tokens=8, seed=8)
    samples = [
        sampled(hot, [prompt]),
        sampled(hot, [replace(prompt, prompt_id="another")]),
        sampled(other_seed, [prompt]),
    ]
    assert samples[0] != samples[1] and samples[0] != samples[2] and samples[1] != samples[2]
    assert len({tuple(completion.ids) for completion in samples[0][0]}) > 8


@pytest.mark.parametrize("limit", [1, 3, 24])
def test_completions_end_with_stop_or_at_the_limit(prompts: list[Prompt], limit: int) -> None:
    for completions in sampled(decoded_otherwise(max_output_tokens=limit), prompts):
        for completion in completions:
            assert completion.finish_reason in ("stop", "length")
            n_tokens = len(completion.ids)
            assert n_tokens == limit or (completion.finish_reason == "stop" and n_tokens < limit)
            assert "<|" not in text_of(completion)


def test_a_trained_model_stops_by_itself_and_one_token_is_too_few(
    prompts: list[Prompt], samples: list[list[Sample]]
) -> None:
    def reasons(of: list[list[Sample]]) -> set[str]:
        return {completion.finish_reason for completions in of for completion in completions}

    assert "stop" in reasons(samples)
    assert reasons(sampled(decoded_otherwise(max_output_tokens=1), prompts)) == {"length"}


@pytest.mark.parametrize(("temperature", "top_p"), [(1.0, 1.0), (0.5, 0.8), (1.5, 1.0)])
def test_logprob_is_the_sum_over_the_completions_tokens_at_temperature_one(
    tiny_network: Any, prompts: list[Prompt], temperature: float, top_p: float
) -> None:
    tokenizer = AutoTokenizer.from_pretrained(MODEL.path)
    n_compared = 0
    one_per_task = prompts[::2]
    samples = sampled(decoded_otherwise(temperature=temperature, top_p=top_p), one_per_task)
    for prompt, completions in zip(one_per_task, samples, strict=True):
        for completion in completions:
            answer = completion.ids
            ids = torch.tensor([tokenizer(prompt.text, add_special_tokens=False)["input_ids"] + answer])
            with torch.no_grad():
                logprobs = tiny_network(ids).logits.log_softmax(-1)[0]
            start = ids.shape[1] - len(answer)
            expected = sum(float(logprobs[start + index - 1, token]) for index, token in enumerate(answer))
            assert completion.logprob == pytest.approx(expected, abs=1e-3)
            n_compared += 1
    assert n_compared == 12


def test_nearly_no_nucleus_is_the_greedy_completion(
    sampler: TransformersSampler, tiny_network: Any, prompts: list[Prompt]
) -> None:
    (samples,) = sampled(decoded_otherwise(top_p=1e-6), prompts[:1])
    assert len({tuple(sample.ids) for sample in samples}) == 1
    assert text_of(samples[0]) == greedy(tiny_network, sampler.tokenizer, prompts[0])


def test_temperature_zero_is_the_greedy_completion(
    sampler: TransformersSampler, tiny_network: Any, prompts: list[Prompt]
) -> None:
    (samples,) = sampled(decoded_otherwise(temperature=0.0), prompts[:1])
    assert len({tuple(sample.ids) for sample in samples}) == 1
    assert text_of(samples[0]) == greedy(tiny_network, sampler.tokenizer, prompts[0])


@pytest.mark.parametrize("lora_bias", [False, True])
def test_an_adapter_acts_as_peft_applies_it(
    sampler: TransformersSampler, tiny_network: Any, prompts: list[Prompt], tmp_path: Path, lora_bias: bool
) -> None:
    prompts = prompts[::2]  # one per task
    adapter = make_adapter(tmp_path / "adapter", MODEL.path, lora_bias=lora_bias)
    adapted = TransformersSampler(MODEL, adapter, replace(DECODING, temperature=0.0), TOKENIZER)
    texts = [text_of(completions[0]) for completions in sampled(adapted, prompts)]
    plain = AutoModelForCausalLM.from_pretrained(MODEL.path, dtype=torch.float32)
    peft = PeftModel.from_pretrained(plain, adapter).eval()
    assert texts == [greedy(peft, sampler.tokenizer, prompt) for prompt in prompts]
    assert texts != [greedy(tiny_network, sampler.tokenizer, prompt) for prompt in prompts]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_later_turn_reads_only_what_is_new(prompts: list[Prompt], temperature: float) -> None:
    """Three turns of two prompts with three rows each, of which some are cut and one ends after the first turn."""
    settings = {"temperature": temperature, "max_output_tokens": 9}
    keeping = decoded_otherwise(**settings)
    n_read: list[int] = []
    keeping.network.get_input_embeddings().register_forward_hook(lambda _, ids, __: n_read.append(ids[0].shape[1]))
    contexts = [TOKENIZER(prompt.text, add_special_tokens=False)["input_ids"] for prompt in prompts[:2]]
    rows = [list(ids) for ids in contexts for _ in range(3)]
    results = [TOKENIZER(text, add_special_tokens=False)["input_ids"] for text in ("no", "try again", "3")]
    for turn in range(3):
        n_before, seeds = len(n_read), [turn] * len(rows)
        turns = keeping.sample_turns(rows, seeds)
        assert turns == decoded_otherwise(**settings).sample_turns(rows, seeds)
        distinct = set(map(tuple, rows))
        # of what follows a prompt, the last token of a turn has not been read
        assert n_read[n_before] == (
            sum(map(len, distinct)) if turn == 0 else len(distinct) * len([0, *results[turn - 1]])
        )
        rows = [row + ids + results[turn] for row, ids in zip(rows, turns, strict=True)]
        del rows[4:5]


def test_end_tokens_of_the_generation_config_end_a_completion(prompts: list[Prompt], tmp_path: Path) -> None:
    coldest = replace(DECODING, temperature=0.0)
    before = sampled(TransformersSampler(MODEL, None, coldest, TOKENIZER), prompts[:1])[0][0]
    ids = before.ids[:-1] if before.finish_reason == "stop" else before.ids
    folder = shutil.copytree(MODEL.path, tmp_path / "model")
    settings = json.loads((folder / "generation_config.json").read_text())
    (folder / "generation_config.json").write_text(json.dumps({**settings, "eos_token_id": [257, ids[-2]]}))
    model = MODEL.model_copy(update={"path": str(folder)})
    after = sampled(TransformersSampler(model, None, coldest, TOKENIZER), prompts[:1])[0][0]
    index = ids.index(ids[-2])
    assert (after.ids, after.finish_reason) == (ids[: index + 1], "stop")


# one shard, interrupted and resumed (test_sampling.py has its other tests, with a sampler that is made up)


class Evicted(Exception):
    pass


class EvictedAfterTwo:
    def __init__(self, sampler: TransformersSampler) -> None:
        self.sampler = sampler

    def sample(self, requests: Sequence[Request]) -> Iterator[Sampled]:
        yield from self.sampler.sample(requests[:2])
        raise Evicted


def test_a_resumed_job_gives_what_an_undisturbed_one_would_have(
    sampler: TransformersSampler,
    prompts: list[Prompt],
    samples: list[list[Sample]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def attempts() -> list[tuple[str, float]]:
        written = attempts_module.sample_shard(ARC, prompts, MODEL, None, DECODING, tmp_path / "out.parquet")
        return [(attempt.completion, attempt.logprob) for attempt in written]

    monkeypatch.setattr(attempts_module, "open_sampler", lambda *_: EvictedAfterTwo(sampler))
    with pytest.raises(Evicted):
        attempts()
    monkeypatch.setattr(attempts_module, "open_sampler", lambda *_: sampler)
    assert attempts() == [
        (text_of(completion), completion.logprob) for completions in samples for completion in completions
    ]
