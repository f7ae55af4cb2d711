"""The report's words about the experiment: what was compared, how to read the figures, what they do not show."""

from collections.abc import Mapping, Sequence

from arc_refinery.config import (
    Arm,
    Grpo,
    Guard,
    Optimizer,
    PromptedModel,
    Refinement,
    Refining,
    Run,
    Sandbox,
    Sft,
    Turn,
)
from arc_refinery.evaluation.statistics import SIGNIFICANCE, mcnemar

HOW_TO_READ = """\
<details><summary>How to read the figures</summary>

All figures are means over tasks; a task's figure is a mean over its attempts, except where said. Brackets: 95 % interval, from a bootstrap that resamples the tasks.

- **valid code**: attempts that hold a program; **valid outputs**: attempts whose program gave a grid for every input; **unique outputs**: different outputs / attempts.
- **train_pixel_score**, **test_pixel_score**: equal cells (for unequal shapes, at the best offset: equal cells / the box that holds both); 0 without valid outputs.
- **train_correct_grids**, **test_correct_grids**: share of grids that are right in every cell.
- **train_pass_rate**, **test_pass_rate**: share of attempts with all train (test) grids correct.
- **train_is_correct**, **test_is_correct**: tasks where any attempt has all train (test) grids correct. **is_correct**: tasks where both hold, which is what *solved* means here.
- **pass@k**: chance that k of a turn's attempts, drawn at random, solve the task (unbiased, Chen et al. 2021).
- **two guesses**: what a submission of two guesses would solve: attempts that are correct on all train pairs vote, and the two outputs with most votes are the guesses (`arc-refinery predictions submit` fills up with other attempts).
- **tokens**: of completions, and of each prompt once for all completions that share it.
- **supported**: the 95 % interval of the paired difference excludes 0, and the exact McNemar test gives p < 0.05 (of repeated arms, whose mean is compared: the interval alone).
- **tasks needed**: how many tasks would show a difference of this size, in four experiments of five, at p < 0.05 (normal approximation for paired differences).

</details>"""  # noqa: E501


def compared(experiment: Refining, sizes: Mapping[str, int]) -> list[str]:
    """What the arms are and the settings that matter; `sizes` are the numbers of tasks of the evaluation sets."""
    model, sampling, baseline = experiment.model, experiment.sampling, experiment.arms[0]
    sets = ", ".join(f"`{name}` ({n} {'task' if n == 1 else 'tasks'})" for name, n in sizes.items())
    refines = any(len(arm.turns) > 1 for arm in experiment.arms)
    share = len({arm.branch(1) for arm in experiment.arms}) < len(experiment.arms)
    shown = "in another symmetry and colouring" if sampling.use_data_augmentation else "as the task is"
    settings = [
        f"- Model: {_described_model(model)}, prompt template `{model.template}`.",
        *(f"- Model `{name}`: {_described_model(other)}." for name, other in experiment.models.items()),
        f"- Sampling: temperature {sampling.temperature}, top-p {sampling.top_p}, at most {sampling.max_output_tokens} "
        f"tokens; groups of {sampling.batch_size} completions share a prompt, each group's {shown}.",
        *([_refining(experiment)] if refines else []),
        *_trainings(experiment),
        f"- Executing: {_limits_of_programs(experiment.sandbox)}",
        f"- Seed: {experiment.seed}{_further_seeds(experiment)}. Intervals: {experiment.evaluation.n_bootstrap} "
        "resamples.",
    ]
    return [
        "## What was compared",
        f"Ways (*arms*) to spend a budget of attempts a task, on {sets}. The baseline is `{baseline.name}`. "
        f"Differences are paired by task.{' Arms share first-turn attempts of the same model.' if share else ''}",
        "\n".join(f"- `{arm.name}`: {_describe(arm, experiment.refinement)}" for arm in experiment.arms),
        "Settings that matter:",
        "\n".join(settings),
        HOW_TO_READ,
    ]


def _described_model(model: PromptedModel) -> str:
    return f"`{model.path}`, window {model.window} tokens, {model.dtype}, sampled by {model.backend}"


def _further_seeds(experiment: Refining) -> str:
    seeds = {"training": experiment.training.seeds if experiment.training else (), "arms": experiment.evaluation.seeds}
    return "".join(f"; of {what}: {', '.join(map(str, values))}" for what, values in seeds.items() if values)


def _refining(experiment: Refining) -> str:
    return f"- Refining: {_described_refinement(experiment.refinement)}, with the result of executing them."


def _described_refinement(refinement: Refinement) -> str:
    distinct = " with different outputs" if refinement.select == "best-distinct" else ""
    failed = "after them programs" if refinement.include_errors else "no programs"
    return f"the {refinement.n_parents} best incorrect attempts{distinct} in turn, {failed} that failed with an error"


def _trainings(experiment: Refining) -> list[str]:
    """One item for each adapter, and one for what guards them."""
    if experiment.training is None:
        return []
    items = []
    if experiment.training.sft:
        items.append(f"{_named(experiment.sft_adapters)} {_described_sft(experiment, experiment.training.sft)}")
    for alike in _repeated(experiment.runs):
        items.append(f"{_named(alike)} {_described_grpo(experiment, experiment.runs[alike[0]])}")
    return [*items, *([_described_guard(experiment.training.guard)] if experiment.runs else [])]


def _repeated(runs: Mapping[str, Run]) -> list[list[str]]:
    """Names of runs that differ in nothing but their seed, together."""
    groups: dict[str, list[str]] = {}
    for name, run in runs.items():
        groups.setdefault(repr(run), []).append(name)
    return list(groups.values())


def _named(adapters: Sequence[str]) -> str:
    return f"- Training {', '.join(f'`{name}`' for name in adapters)}:"


def _training_tasks(experiment: Refining) -> str:
    from_parts = experiment.training_tasks == experiment.part_names
    source = f" (source: {experiment.problems.source})" if experiment.problems and from_parts else ""
    return f"the tasks of {', '.join(f'`{name}`' for name in experiment.training_tasks)}{source}"


def _described_sft(experiment: Refining, sft: Sft) -> str:
    demonstrations = sft.demonstrations
    programs = {
        "source": "the task's own source",
        "attempts": "sampled correct attempts on the same prompt",
    }[demonstrations.targets]
    share = demonstrations.first_turn_share
    at_once = f"; {100 * share:g} % of the rows answer a task at once" if share else ""
    rank = experiment.training.lora.lora_r if experiment.training else 0
    return (
        f"SFT on second turns from {_training_tasks(experiment)}; the {demonstrations.n_parents} best incorrect "
        f"attempts of each task are refined to {programs}{at_once}. LoRA rank {rank}, learning rate "
        f"{sft.learning_rate:g}, {sft.rows_per_step} rows a step, {_duration(sft)}."
    )


def _described_grpo(experiment: Refining, trained: Run) -> str:
    run = trained.grpo
    assert isinstance(run, Grpo)
    prompts = experiment.training.prompts if experiment.training else ""
    start = " from what SFT has made" if experiment.sft_adapters else ""
    rollout = {
        "prepared": "",
        "on-policy": "; an answer is executed and, where it is wrong, refined at once: both answers carry loss, the "
        "feedback does not",
    }[run.rollout]
    return (
        f"GRPO{start} on {prompts} prompts from {_training_tasks(experiment)}{rollout}. "
        f"Reward {_described_reward(run)}. Loss {_described_loss(run)}. "
        f"LoRA rank {trained.lora.lora_r}, learning rate {run.learning_rate:g}, KL weight {run.beta:g}; a step takes "
        f"{run.num_generations} completions of each of its prompts ({run.prompts_per_step}), sampled by {run.sampler}; "
        f"{_duration(run)}. {_described_choice(run)}"
    )


def _described_reward(run: Grpo) -> str:
    terms = [
        (run.improvement_weight, "plus {:g} × what it earns more than the attempt that it refines"),
        (run.repetition_weight, "less {:g} × its share of repeated 4-grams"),
        (run.truncation_penalty, "less {:g} where it is cut"),
        (run.pass_at_k if run.pass_at_k > 1 else 0, "credit for the best of {:g} completions"),
    ]
    return ", ".join([f"`{run.reward_name}`", *(words.format(value) for value, words in terms if value)])


def _described_loss(run: Grpo) -> str:
    terms = [
        (run.epsilon_high, f"clipped upwards at {run.epsilon_high}"),
        (run.importance_sampling_level == "sequence", "probability ratios of whole completions"),
        (run.entropy_coef, f"an entropy bonus of {run.entropy_coef:g}"),
        (run.mask_truncated_completions, "without cut completions"),
        (run.drop_zero_variance, "without groups of equal rewards"),
    ]
    return ", ".join([f"`{run.loss_type}`", *(words for is_there, words in terms if is_there)])


def _duration(optimizer: Optimizer) -> str:
    most = f", {optimizer.max_steps} steps at most" if optimizer.max_steps > 0 else ""
    return f"{optimizer.epochs:g} {'pass' if optimizer.epochs == 1 else 'passes'} over the data{most}"


def _described_choice(run: Grpo) -> str:
    if not run.n_heldout:
        return "The last step gives the adapter."
    return (
        f"Of the checkpoints, the one that earns most on {run.n_heldout} prompts kept out of training is the adapter."
    )


def _described_guard(guard: Guard) -> str:
    kl = f", or the KL from the start exceeds {guard.max_kl:g} nats/token" if guard.max_kl else ""
    done = {
        "rollback": f"It then goes back to the last good checkpoint, with {guard.rate_factor:g} × the learning rate "
        f"({guard.max_rollbacks} times at most; after that it is stopped).",
        "stop": "It is then stopped.",
        "none": "This is only said, under *Training*; nothing is done about it.",
    }[guard.action]
    return (
        f"- Collapse: a GRPO training counts as collapsed when, over {guard.window} steps, more than "
        f"{100 * guard.max_truncated:g} % of the completions are cut, more than {100 * guard.max_repetition:g} % of "
        f"their 4-grams are repeated, or the reward falls under {100 * guard.min_reward:g} % of what it was{kl}. {done}"
    )


def _limits_of_programs(sandbox: Sandbox) -> str:
    limits = f"{sandbox.cpu_seconds:g} s of CPU time and {sandbox.memory_mb} MB for each program."
    if not sandbox.allow_without_seccomp:
        return limits
    return (
        f"{limits} **The configuration allows programs to be executed where their system calls cannot be filtered "
        "(`sandbox.allow_without_seccomp`): there, they could reach files and the network, so that verdicts could "
        "depend on more than the programs.**"
    )


def _describe(arm: Arm, usual: Refinement) -> str:
    """`64 first attempts by the untrained model, then 64 refining ones by the trained model (128 in all)`."""
    kinds = ["first attempts", *["refining ones"] * (len(arm.turns) - 1)]
    told = {"real": "", "none": ", told nothing", "other-task": ", told what an attempt on another task gave"}
    turns = [
        f"{turn.n_predictions} {kind} by {_model_of(turn)}{told[turn.feedback]}{_chosen(turn, usual)}"
        for turn, kind in zip(arm.turns, kinds, strict=True)
    ]
    seed = "" if arm.seed is None else f", sampled with the seed {arm.seed}"
    return ", then ".join(turns) + seed + (f" ({arm.budget} in all)." if len(turns) > 1 else ".")


def _chosen(turn: Turn, usual: Refinement) -> str:
    own = turn.refinement(usual)
    return "" if own == usual else f" (of {_described_refinement(own)})"


def _model_of(turn: Turn) -> str:
    if turn.model:
        return f"the model `{turn.model}`"
    match turn.adapter:
        case "none":
            return "the untrained model"
        case "trained":
            return "the trained model"
        case run:
            return f"the model trained as `{run}`"


def limits(experiment: Refining, n_comparisons: int) -> list[str]:
    arms = experiment.arms
    needed = next(n for n in range(1, 99) if mcnemar(n, 0) < SIGNIFICANCE)
    trained = trained_turns(arms)
    items = [
        _what_intervals_say(experiment),
        f"Few tasks show large differences only: p < 0.05 takes at least {needed} tasks that one arm solves and the "
        "other does not. A difference that is not supported is not shown to be absent.",
        f"p values are not corrected for the {n_comparisons} comparisons made here." if n_comparisons > 1 else "",
        "Arms of equal budget spend equal numbers of attempts, not of tokens: refining prompts are longer. At equal "
        "generated tokens, the tokens of prompts are left out, which are read faster than tokens are generated."
        if any(len(arm.turns) > 1 for arm in arms)
        else "",
        "No arm answers first turns with the trained model. So a gain of the trained model in later turns does not "
        "tell learning to refine from answering better in general."
        if trained and 1 not in trained
        else "",
        "Two guesses are scored by whole tasks; ARC's own scoring counts each test grid.",
        *(f"`{one.name}`: {one.caveat}" for one in experiment.evaluation.sets if one.caveat),
    ]
    return ["## What this does not show", "\n".join(f"- {item}" for item in items if item)]


def _what_intervals_say(experiment: Refining) -> str:
    trained = bool(experiment.training and len(experiment.training.seeds) > 1)
    sampled = len(experiment.evaluation.seeds) > 1
    not_said = [
        "" if trained or not experiment.adapters else "with another training run",
        "" if sampled else "with other samples of the same model",
    ]
    rest = " or ".join(word for word in not_said if word)
    repeated = " Of repeated arms the mean over the repetitions is compared." if trained or sampled else ""
    return (
        f"Intervals say how figures vary with the choice of tasks{f', not how they would vary {rest}' if rest else ''}."
        f"{repeated}"
    )


def trained_turns(arms: Sequence[Arm]) -> set[int]:
    """Numbers of the turns that any arm samples with the trained adapter."""
    return {number for arm in arms for number, turn in enumerate(arm.turns, 1) if turn.adapter != "none"}
