"""Tokens and time of GRPO on the full-size configs, with each prompt read once and without, as a Markdown table.

    python benchmarks/full_size.py

Nothing is run: tokens of a step are counted for rows of the longest length, and floating-point operations from them.
A token costs 2 per parameter to read, 4 more in the backward pass with gradient checkpointing (the pass itself, and the
layers once more; frozen weights need no gradients), and 2 with a KL term (the reference). Attention is left out, so
the ratio is of tokens. Hours assume 40 % of an H100's 989e12 per second in bfloat16; sampling is not included.
"""

from pathlib import Path

from sandbox import show

from arc_refinery.config import PolicyGradient, Refining, ToolUse, Training, load_experiment
from arc_refinery.model_shape import PUBLISHED_SHAPES, shape_of

CONFIG = Path(__file__).parents[1] / "config"
OPERATIONS = 0.4 * 989e12  # per second
N_STEPS = 1000


def tokens(experiment: Refining | ToolUse, grpo: PolicyGradient, shares: bool) -> int:
    """Tokens of one step whose prompts and completions are the longest that are allowed."""
    match experiment:
        case Refining(model=model, training=Training() as training):
            longest, scored = min(model.window, training.max_seq_length), training.max_completion_length
        case ToolUse(model=model, generation=generation):
            longest, scored = model.window, generation.max_episode_tokens
        case _:
            raise ValueError("the experiment trains nothing")
    n_rows = grpo.num_generations * grpo.prompts_per_step
    return (grpo.prompts_per_step if shares else n_rows) * (longest - scored) + n_rows * scored


def main() -> None:
    rows = []
    for path in sorted(CONFIG.glob("*.yaml")):
        experiment = load_experiment(path)
        if not isinstance(experiment, Refining | ToolUse) or experiment.model.path not in PUBLISHED_SHAPES:
            continue
        for name, run in experiment.runs.items():
            alone, shared = (tokens(experiment, run.grpo, shares) for shares in (False, True))
            per_token = (6 + (2 if run.grpo.beta else 0)) * shape_of(experiment.model.path).n_parameters
            hours = (f"{N_STEPS * n * per_token / OPERATIONS / 3600:.1f}" for n in (alone, shared))
            rows.append([f"`{path.stem}`, {name}", f"{alone:,}", f"{shared:,}", f"{alone / shared:.1f}", *hours])
    titles = "training; tokens per step; each prompt once; ratio; hours per 1,000 updates; each prompt once"
    show("GRPO at full size, computed", "Rows of the longest length; nothing was run.", titles, rows)


if __name__ == "__main__":
    main()
