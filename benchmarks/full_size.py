"""Memory and time of a GRPO step on the full-size configs, for three GPUs, as Markdown tables.

    python benchmarks/full_size.py

Counted, not measured: nothing is run. Memory is that of `arc-refinery doctor memory`. If a training does not fit as
configured, the first of these that fits is taken, with the fewest passes: sleep mode with 0.45 of the memory for vLLM,
or sampling by transformers. Unsloth's trainings are counted only as configured. Seconds are for typical lengths: half
of the longest prompt, and completions (episodes) with a log-normal distribution around a third of the longest; once
more for the longest ones. What is counted: `arc_refinery.sampling.gpu_time`.
"""

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

from sandbox import show

from arc_refinery.config import PolicyGradient, load_experiment
from arc_refinery.models.shape import PUBLISHED_SHAPES
from arc_refinery.refining.domains.arc.config import ArcExperiment
from arc_refinery.sampling.gpu_memory import Count, Step, counts, steps
from arc_refinery.sampling.gpu_time import GPUS, Gpu, lengths, seconds
from arc_refinery.tool_use.config import ToolUse

CONFIG = Path(__file__).parents[1] / "config"
PARTS = ("new weights", "sampling", "reward", "update", "attention")
MODES: tuple[dict[str, Any], ...] = (
    {},
    {"sleep_mode": True, "gpu_memory_utilization": 0.45},
    {"sampler": "transformers"},
)


SHOWN = [GPUS[name] for name in ("h100", "a100-40", "a6000")]


def trainings() -> Iterator[tuple[str, ArcExperiment | ToolUse]]:
    """Experiments with GRPO, by name."""
    for path in sorted(CONFIG.glob("*.yaml")):
        experiment = load_experiment(path)
        if (
            isinstance(experiment, ArcExperiment | ToolUse)
            and experiment.runs
            and experiment.model.path in PUBLISHED_SHAPES
        ):
            yield path.stem, experiment


def changed(experiment: ArcExperiment | ToolUse, gpu: Gpu, grpo: dict[str, Any]) -> ArcExperiment | ToolUse:
    content = experiment.model_dump()
    content["training"]["grpo"] |= grpo
    content["resources"]["train"]["gpu_mem_mb"] = gpu.gpu_mem_mb
    return type(experiment).model_validate(content)


def first_training(experiment: Any) -> tuple[Step, Count]:
    step = next(step for step in steps(experiment) if step.key == "training.grpo")
    return step, next(count for count in counts(experiment) if step.job in count.job)


def fitting(experiment: Any, gpu: Gpu) -> tuple[str, Step, Count] | None:
    """Return the first settings that fit the GPU: in words, the step, and its memory."""
    configured, _ = first_training(experiment)
    passes = [n for n in range(configured.passes, configured.n_rows + 1) if configured.n_rows % n == 0]
    for mode, n in product(MODES, passes):
        update = mode | {"gradient_accumulation_steps": n}
        step, count = first_training(changed(experiment, gpu, update))
        if not count.faults:
            if n == configured.passes:
                update = mode
            words = ", ".join(f"`{key}: {str(value).lower()}`" for key, value in update.items())
            return words or "as configured", step, count
    return None


def row(step: Step, gpu: Gpu) -> list[str]:
    grpo = step.settings
    assert isinstance(grpo, PolicyGradient)
    longest = step.length - step.n_scored
    typical = seconds(step, grpo, gpu, longest // 2, lengths(step.n_rows, step.n_scored))
    worst = sum(seconds(step, grpo, gpu, longest, [step.n_scored] * step.n_rows))
    total = sum(typical)
    return [*(f"{part:.1f}" for part in typical), f"{total:.1f}", f"{worst:.0f}", f"{total / 3.6:.1f}"]


def main() -> None:
    titles = "; ".join(("training", *PARTS, "step", "longest", "hours per 1,000 steps"))
    for gpu in SHOWN:
        rows: dict[tuple[str, ...], list[str]] = {}  # those of trainings that are alike only once
        for name, experiment in trainings():
            if gpu is not SHOWN[0] and name.endswith("-unsloth"):
                continue
            if fit := fitting(experiment, gpu):
                words, step, count = fit
                gib = f"{count.total / 2**30:.1f} ({count.share:.0%})"
                rows.setdefault((words, gib, *row(step, gpu)), []).append(f"`{name}`")
            else:
                rows.setdefault(("does not fit", *["–"] * 9), []).append(f"`{name}`")
        header = titles.replace("training;", "training; settings; GiB;")
        show(
            gpu.name, "Seconds of a step, counted.", header, [[", ".join(names), *line] for line, names in rows.items()]
        )
    multi_turn = dict(trainings())["multi-turn-rl"]
    several = []
    for n_steps in (1, 2, 4, 8):
        step, _ = first_training(changed(multi_turn, SHOWN[0], {"steps_per_generation": n_steps}))
        several.append([str(n_steps), *row(step, SHOWN[0])])
    header = titles.replace("training", "steps_per_generation")
    show("multi-turn-rl, several steps per batch", "The same, on an H100.", header, several)


if __name__ == "__main__":
    main()
