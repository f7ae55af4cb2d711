"""What an experiment will cost: against hand arithmetic, measured runs, and the configs in this repository."""

from dataclasses import replace
from typing import Any

import pytest
from checkout import ROOT
from messages import Wording

from arc_refinery import cli
from arc_refinery.config import PolicyGradient, load_experiment
from arc_refinery.doctor.cost import Assumed, cost_page, sampling_cost, sampling_costs, step_seconds, training_costs
from arc_refinery.errors import InputError
from arc_refinery.models.shape import PUBLISHED_SHAPES
from arc_refinery.refining.config.training import PromptChoice, Training
from arc_refinery.sampling.gpu_memory import steps
from arc_refinery.sampling.gpu_time import CHOOSING, GPUS, PEAK_OF_READING, PER_TOKEN, START, sampling_seconds

LLAMA_8B = PUBLISHED_SHAPES["barc0/Llama-3.1-ARC-Potpourri-Induction-8B"]
QWEN_05B = PUBLISHED_SHAPES["Qwen/Qwen2.5-Coder-0.5B-Instruct"]
H100 = GPUS["h100"]


def test_one_completion_to_a_short_prompt_by_hand():
    """Each of 1,000 tokens reads all weights, on average 510 keys and values, and chooses among the vocabulary."""
    weights = 2 * 8_030_261_248
    keys = 1000 * (10 + 500) * 131_072
    choosing = 1000 * CHOOSING * 128_256
    decoding = (1000 * weights + keys + choosing) / (3.35e12 * PEAK_OF_READING) + 1000 * PER_TOKEN
    counted = sampling_seconds(LLAMA_8B, H100, n_prompts=1, prompt=10, n_completions=1, mean=1000)
    assert counted == pytest.approx(decoding, rel=1e-3)  # and the prompt, 0.4 ms
    assert 7 < counted < 9


def test_more_completions_than_fit_take_more_steps():
    """The keys of a completion of 10,000 tokens take 1.22 GiB; 80 GB less the weights hold 42 of them."""
    few, many = (sampling_seconds(LLAMA_8B, H100, n, 1, n, 10_000) for n in (42, 84))
    assert many == pytest.approx(2 * few, rel=0.01)


def test_gpus_of_a_model_share_its_weights_and_keys():
    """Two read twice as fast; of each step, a millisecond is not shared."""
    one, two = (sampling_seconds(LLAMA_8B, H100, 1, 10, 1, 1000, n) for n in (1, 2))
    assert two - 1000 * PER_TOKEN == pytest.approx((one - 1000 * PER_TOKEN) / 2)


def test_a_model_that_does_not_fit_is_refused_and_fits_on_more_cards(wording: Wording):
    experiment = load_experiment(ROOT / "config/multi-turn-rl.yaml")
    (planned, *_) = experiment.planned_sampling
    small = replace(GPUS["rtx4090"], gpu_mem_mb=16_000)
    with pytest.raises(InputError) as error:
        sampling_cost(planned, 10, small, Assumed())
    wording(error.value)
    split = planned.model.model_copy(update={"tensor_parallel_size": 2})
    assert sampling_cost(planned._replace(model=split), 10, small, Assumed()).hours


def test_weights_that_transformers_has_in_4_bits_fit_a_smaller_card():
    """8e9 parameters are 16.1 GB in 16 bits; in 4, with embeddings in 16, about 6."""
    small, numbers = replace(GPUS["rtx4090"], gpu_mem_mb=16_000), (1, 10, 1, 100)
    with pytest.raises(ValueError, match="16 GB of weights"):
        sampling_seconds(LLAMA_8B, small, *numbers)
    quantized = sampling_seconds(LLAMA_8B, small, *numbers, in_4bit=True)
    assert quantized == sampling_seconds(LLAMA_8B, GPUS["rtx4090"], *numbers)  # unpacked, as many bytes are moved


def test_prompts_are_read_once_for_each_batch_of_completions():
    experiment = load_experiment(ROOT / "config/multi-turn-rl.yaml")
    (planned, *_) = experiment.planned_sampling
    hours = [
        sampling_cost(planned._replace(n_completions=128, per_prompt=n), 100, H100, Assumed(answer=1)).hours or 0
        for n in (128, 1)
    ]
    assert hours[1] > 2 * hours[0]


def test_a_probe_is_counted():
    experiment = load_experiment(ROOT / "config/multi-turn-rl.yaml")
    assert isinstance(experiment.training, Training)
    training = experiment.training.model_copy(update={"select": PromptChoice(probe=4)})
    changed = experiment.model_copy(update={"training": training})
    (probe,) = (planned for planned in changed.planned_sampling if planned.stage == "part1: probe")
    assert (probe.n_tasks, probe.n_completions, probe.is_most) == (10_000, 4, True)


def test_processes_share_the_work_of_a_step():
    experiment = load_experiment(ROOT / "config/multi-turn-rl.yaml")
    step = next(step for step in steps(experiment) if isinstance(step.settings, PolicyGradient))
    two = replace(step, settings=step.settings.model_copy(update={"n_processes": 2}))
    assert step_seconds(step, H100) / 2 < step_seconds(two, H100) < step_seconds(step, H100)


# docs/run.md, "Measured on an H100": without vLLM's start and the first compilation; 0.5B with the start, while other
# jobs used the card
@pytest.mark.parametrize(
    ("shape", "numbers", "start", "measured"),
    [(LLAMA_8B, (16, 2950, 128, 512), 0, 14.0), (QWEN_05B, (250, 150, 16_000, 134), START, 237.0)],
    ids=["8B", "0.5B"],
)
def test_counted_seconds_are_within_a_factor_of_two_of_measured_ones(
    shape: Any, numbers: tuple[int, int, int, int], start: int, measured: float
):
    assert 0.5 < (start + sampling_seconds(shape, H100, *numbers)) / measured < 2


def test_the_flagship_samples_what_its_config_says():
    experiment = load_experiment(ROOT / "config/multi-turn-rl.yaml")
    costs = {cost.stage: cost for cost in sampling_costs(experiment, H100, Assumed(answer=100))}
    assert {stage: cost.n_completions for stage, cost in costs.items()} == {
        "part1: first turn": 10_000 * 8,
        "part2: first turn": 10_000 * 8,
        "arc-agi-1-evaluation: turn1": 400 * 128,
        "arc-agi-1-evaluation: refine-base-turn2, at most": 400 * 64,
        "arc-agi-1-evaluation: refine-trained-turn2, at most": 400 * 64,
    }
    assert all(cost.n_tokens == 100 * cost.n_completions for cost in costs.values())


def test_a_set_of_unknown_size_is_counted_with_the_size_that_is_given():
    experiment = load_experiment(ROOT / "config/tool-use.yaml")
    assert {cost.hours for cost in sampling_costs(experiment, H100, Assumed())} == {None}
    counted = list(sampling_costs(experiment, H100, Assumed(n_tasks=1000)))
    assert len(counted) == 2 * 5  # sets and arms
    assert {cost.n_completions for cost in counted} == {1000 * 8}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("one-task-sanity", ["train learning-rate-1e-5, 40 steps and 1 more"]),  # one prompt, 40 epochs
        ("quick", ["sft, 38 steps", "train trained, 12 steps"]),  # 600 questions in steps of 16; max_steps
        ("multi-turn-rl", ["train trained, 1,000 steps (its rows decide how many)"]),
    ],
)
def test_steps_are_those_that_the_config_tells(name: str, expected: list[str]):
    experiment = load_experiment(ROOT / f"config/{name}.yaml")
    assert [cost.stage for cost in training_costs(experiment, H100)] == expected


def test_a_training_that_does_not_fit_the_card_and_too_many_tokens_are_named(wording: Wording):
    experiment = load_experiment(ROOT / "config/multi-turn-rl.yaml")
    blocks = cost_page(experiment, GPUS["rtx4090"], Assumed()).split("\n\n")
    (block,) = (block for block in blocks if "does not fit" in block)
    wording(block)
    assert "does not fit" not in cost_page(experiment, H100, Assumed())
    assert cost_page(experiment, H100, Assumed(answer=1024))
    for assumed in (Assumed(prompt=10**8), Assumed(answer=1025)):
        with pytest.raises(InputError) as error:
            cost_page(experiment, H100, assumed)
        wording(error.value)


def test_a_faster_card_takes_less_time():
    experiment = load_experiment(ROOT / "config/multi-turn-rl.yaml")
    hours = {
        name: sum(cost.hours or 0 for cost in sampling_costs(experiment, gpu, Assumed())) for name, gpu in GPUS.items()
    }
    assert hours["h200"] < hours["h100"] < hours["a100"] < hours["a100-40"]


def test_the_page_names_what_is_assumed_and_what_is_missing(capsys: pytest.CaptureFixture[str], wording: Wording):
    for words in (["--gpu", "a100"], ["--prompt-tokens", "900", "--answer-tokens", "200", "--tasks", "500"]):
        path = ROOT / "config" / ("multi-turn-rl.yaml" if "--gpu" in words else "code-demo.yaml")
        cli.parse(["doctor", "cost", "--configfile", str(path), *words]).run()
        for block in capsys.readouterr().out.strip().split("\n\n")[2:]:
            wording(block)
    assert "| at least " in cost_page(load_experiment(ROOT / "config/tool-use.yaml"), H100, Assumed())
    assert "| – |" in cost_page(load_experiment(ROOT / "config/pass-at-1.yaml"), H100, Assumed()).split("all | ")[1]
    assert "not counted" in cost_page(load_experiment(ROOT / "config/code-demo.yaml"), H100, Assumed())
    wording(cost_page(load_experiment(ROOT / "config/config.yaml"), H100, Assumed()).split("\n\n")[3])
