"""Report text on the experiment: arms and settings, explanations of the metrics, limitations."""

from collections.abc import Mapping, Sequence

from arc_refinery.config import (
    Arm,
    FeedbackForm,
    FeedbackKind,
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

VALIDATION = (
    "Settings were chosen with results on these tasks known, so they look better here than on tasks that nobody has "
    "seen."
)
HIDDEN = (
    "Each task has {n} hidden test pairs besides those of its prompts: a program is correct on test pairs if it "
    "answers these, too."
)
METRICS_EXPLAINED = """\
<details><summary>How to read the metrics</summary>

All metrics are means over tasks; the metric of a task is the mean over its attempts unless stated otherwise. Brackets: 95 % interval for other tasks like these (of repeated trainings also for other training runs).

- **valid code**: attempts with a closed Python block; **any code**: attempts with a program, even one cut off; **valid outputs**: attempts whose program returned a grid for every input; **unique outputs**: distinct outputs / attempts.
- **train_pixel_score**, **test_pixel_score**: share of equal cells (for different shapes, the most equal cells at any offset / (larger height x larger width)); 0 without valid outputs.
- **train_correct_grids**, **test_correct_grids**: share of grids that are correct in every cell.
- **train_pass_rate**, **test_pass_rate**: share of attempts with all train (test) grids correct.
- **train_is_correct**, **test_is_correct**: tasks with an attempt that has all train (test) grids correct. **is_correct**: tasks for which both hold; these are called *solved*.
- **pass@k**: probability that k of a turn's attempts solve the task, if they are spent as they were sampled: all attempts of one prompt, then those of another, in random order. Attempts on one prompt are alike, so this is less than for attempts drawn singly (Chen et al. 2021).
- **two guesses**: tasks that a submission of two guesses would solve: attempts that are correct on all train pairs vote, and the two outputs with most votes are the guesses (`arc-refinery predictions submit` adds other attempts if there are fewer than two).
- **tokens**: those of completions, and of each prompt once for all completions that share it.
- **p**: exact McNemar test; of repeated arms the t test over tasks and runs. **p corrected**: for the number of comparisons in the report but the primary one (Holm).
- **supported**: the 95 % interval of the paired difference excludes 0 and p is below 0.05: the corrected p, except for the primary comparison.
- **detectable**: the true difference, in points, that an experiment like this one detects with 80 % power at p < 0.05.

</details>"""  # noqa: E501

FORMS: dict[FeedbackForm, str] = {
    "given": "execution results",
    "residual": "pairs of given and expected grids",
    "difference": "the cells that differ",
    "residual-only": "pairs of given and expected grids, alone; the program runs on the outputs of the one it refines",
}


def arms_and_settings(experiment: Refining, sizes: Mapping[str, int]) -> list[str]:
    """Return blocks on the arms and the main settings; `sizes` are the numbers of tasks of the evaluation sets."""
    model, sampling, baseline = experiment.model, experiment.sampling, experiment.arms[0]
    sets = ", ".join(f"`{name}` ({n} {'task' if n == 1 else 'tasks'})" for name, n in sizes.items())
    refines = any(len(arm.turns) > 1 for arm in experiment.arms)
    share = len({arm.branch(1) for arm in experiment.arms}) < len(experiment.arms)
    shared = " Arms share first-turn attempts of the same model." if share else ""
    augmentation = (
        "its own augmentation (symmetry and colours)" if sampling.use_data_augmentation else "no augmentation"
    )
    settings = [
        f"- Model: {_describe_model(model)}, prompt template `{model.template}`.",
        *(f"- Model `{name}`: {_describe_model(other)}." for name, other in experiment.models.items()),
        f"- Sampling: temperature {sampling.temperature}, top-p {sampling.top_p}, at most {sampling.max_output_tokens} "
        f"tokens; groups of {sampling.batch_size} completions share a prompt, each group with "
        f"{augmentation}.",
        *([_refining(experiment)] if refines else []),
        *_trainings(experiment),
        f"- Execution: {_limits_of_programs(experiment.sandbox)}",
        f"- Seed: {experiment.seed}{_further_seeds(experiment)}.",
    ]
    return [
        "## Arms and settings",
        f"*Arms* are ways to spend a budget of attempts per task. Evaluation sets: {sets}. "
        f"The baseline is `{baseline.name}`. Differences are paired by task.{shared}",
        "\n".join(f"- `{arm.name}`: {_describe_arm(arm, experiment.refinement)}" for arm in experiment.arms),
        "Main settings:",
        "\n".join(settings),
        METRICS_EXPLAINED,
    ]


def _describe_model(model: PromptedModel) -> str:
    return f"`{model.path}`, window {model.window} tokens, {model.dtype}, sampled by {model.backend}"


def _further_seeds(experiment: Refining) -> str:
    seeds = {"training": experiment.training.seeds if experiment.training else (), "arms": experiment.evaluation.seeds}
    return "".join(f"; of {use}: {', '.join(map(str, values))}" for use, values in seeds.items() if values)


def _refining(experiment: Refining) -> str:
    refinement = experiment.refinement
    return f"- Refining: {_describe_parents(refinement)}. Feedback: {FORMS[refinement.form]}."


def _describe_parents(refinement: Refinement) -> str:
    distinct = " with distinct outputs" if refinement.select == "best-distinct" else ""
    failed = "then programs" if refinement.include_errors else "but no programs"
    return f"the {refinement.n_parents} best incorrect attempts{distinct}, in turn, {failed} that failed with an error"


def _trainings(experiment: Refining) -> list[str]:
    """Return one item per adapter, and one for the collapse guard."""
    if experiment.training is None:
        return []
    items = []
    if experiment.training.sft:
        items.append(f"{_item_title(experiment.sft_adapters)} {_describe_sft(experiment, experiment.training.sft)}")
    for names in _group_repetitions(experiment.runs):
        items.append(f"{_item_title(names)} {_describe_grpo(experiment, experiment.runs[names[0]])}")
    return [*items, *([_describe_guard(experiment.training.guard)] if experiment.runs else [])]


def _group_repetitions(runs: Mapping[str, Run]) -> list[list[str]]:
    """Group the names of runs that differ only in their seed."""
    groups: dict[str, list[str]] = {}
    for name, run in runs.items():
        groups.setdefault(repr(run), []).append(name)
    return list(groups.values())


def _item_title(adapters: Sequence[str]) -> str:
    return f"- Training {', '.join(f'`{name}`' for name in adapters)}:"


def _training_tasks(experiment: Refining) -> str:
    from_parts = experiment.training_tasks == experiment.part_names
    source = f" (source: {experiment.problems.source})" if experiment.problems and from_parts else ""
    return f"the tasks of {', '.join(f'`{name}`' for name in experiment.training_tasks)}{source}"


def _describe_sft(experiment: Refining, sft: Sft) -> str:
    demonstrations = sft.demonstrations
    n = demonstrations.n_parents
    match demonstrations.targets:
        case "source":
            learned = f"the {n} best incorrect attempts of each task are refined to the task's source program"
        case "attempts":
            learned = f"the {n} best incorrect attempts of each task are refined to sampled correct attempts on the "
            learned += "same prompt"
        case "hindsight":
            learned = f"{n} attempts of each task answer the task that their own outputs make; others are refined to "
            learned += "them"
    share = demonstrations.first_turn_share
    first_turns = f"; {100 * share:g} % of the rows are first turns" if share else ""
    rank = experiment.training.lora.lora_r if experiment.training else 0
    return (
        f"SFT on second turns from {_training_tasks(experiment)}; {learned}{first_turns}. LoRA rank {rank}, "
        f"learning rate {sft.learning_rate:g}, {sft.rows_per_step} rows per step, {_duration(sft)}."
    )


def _describe_grpo(experiment: Refining, trained: Run) -> str:
    run = trained.grpo
    assert isinstance(run, Grpo)
    prompts = experiment.training.prompts if experiment.training else ""
    start = " starting from the SFT adapter" if experiment.sft_adapters else ""
    match run.rollout:
        case "prepared":
            rollout = ""
        case "on-policy":
            rollout = "; an answer is executed and, if it is wrong, refined in the same rollout: both answers carry "
            rollout += "loss, the feedback does not"
    in_precision = f"In {trained.dtype}. " if trained.dtype else ""
    return (
        f"GRPO{start} on {prompts} prompts from {_training_tasks(experiment)}{rollout}. "
        f"Reward {_describe_reward(run)}. Loss {_describe_loss(run)}. {in_precision}"
        f"LoRA rank {trained.lora.lora_r}, learning rate {run.learning_rate:g}, KL weight {run.beta:g}; per step "
        f"{run.prompts_per_step} prompts with {run.num_generations} completions each, sampled by {run.sampler}; "
        f"{_duration(run)}. {_describe_choice(run)}"
    )


def _describe_reward(run: Grpo) -> str:
    terms = [
        (run.improvement_weight, "plus {:g} × its gain over the attempt that it refines"),
        (run.repetition_weight, "minus {:g} × its share of repeated 4-grams"),
        (run.truncation_penalty, "minus {:g} if it is truncated"),
        (run.pass_at_k if run.pass_at_k > 1 else 0, "credit for the best of {:g} completions"),
    ]
    return ", ".join([f"`{run.reward_name}`", *(words.format(value) for value, words in terms if value)])


def _describe_loss(run: Grpo) -> str:
    terms = [
        (run.epsilon_high, f"clipped upwards at {run.epsilon_high}"),
        (run.importance_sampling_level == "sequence", "probability ratios of whole completions"),
        (run.entropy_coef, f"an entropy bonus of {run.entropy_coef:g}"),
        (run.mask_truncated_completions, "without truncated completions"),
        (run.drop_zero_variance, "without groups of equal rewards"),
    ]
    return ", ".join([f"`{run.loss_type}`", *(words for is_set, words in terms if is_set)])


def _duration(optimizer: Optimizer) -> str:
    most = f", at most {optimizer.max_steps} steps" if optimizer.max_steps > 0 else ""
    return f"{optimizer.epochs:g} {'pass' if optimizer.epochs == 1 else 'passes'} over the data{most}"


def _describe_choice(run: Grpo) -> str:
    if not run.n_heldout:
        return "The adapter is that of the last step."
    return (
        f"The adapter is the checkpoint with the highest mean reward on {run.n_heldout} prompts held out from training."
    )


def _describe_guard(guard: Guard) -> str:
    kl = f", or the KL from the start exceeds {guard.max_kl:g} nats/token" if guard.max_kl else ""
    match guard.action:
        case "rollback":
            done = f"It is then rolled back to the last good checkpoint, with {guard.rate_factor:g} × the learning "
            done += f"rate (at most {guard.max_rollbacks} times; after that it is stopped)."
        case "stop":
            done = "It is then stopped."
        case "none":
            done = "The report then only warns, under *Training*."
    return (
        f"- Collapse: a GRPO training counts as collapsed when, over {guard.window} steps, more than "
        f"{100 * guard.max_truncated:g} % of the completions are truncated, more than {100 * guard.max_repetition:g} % "
        f"of their 4-grams are repeated, or the reward falls below {100 * guard.min_reward:g} % of its earlier "
        f"mean{kl}. {done}"
    )


def _limits_of_programs(sandbox: Sandbox) -> str:
    limits = f"{sandbox.cpu_seconds:g} s of CPU time and {sandbox.memory_mb} MB for each program."
    if not sandbox.allow_without_seccomp:
        return limits
    return (
        f"{limits} **The configuration allows programs to run on machines where their system calls cannot be filtered "
        "(`sandbox.allow_without_seccomp`). There, they could reach files and the network, so verdicts could depend on "
        "more than the programs.**"
    )


FEEDBACK: dict[FeedbackKind, str] = {
    "real": "",
    "none": " without feedback",
    "other-task": " with feedback on an attempt at another task",
}


def _describe_arm(arm: Arm, usual: Refinement) -> str:
    """Return, say, `64 first attempts by the untrained model, then 64 refining attempts by ... (128 in all).`"""
    kinds = ["first attempts", *["refining attempts"] * (len(arm.turns) - 1)]
    turns = [
        f"{turn.n_predictions} {kind} by {_model_of(turn)}{_temperature(turn)}{FEEDBACK[turn.feedback]}"
        f"{_own_refinement(turn, usual)}"
        for turn, kind in zip(arm.turns, kinds, strict=True)
    ]
    seed = "" if arm.seed is None else f", sampled with seed {arm.seed}"
    return ", then ".join(turns) + seed + (f" ({arm.budget} in all)." if len(turns) > 1 else ".")


def _temperature(turn: Turn) -> str:
    if turn.temperature is None:
        return ""
    return f" at temperature {turn.temperature:g}" if turn.temperature else ", greedy"


def _own_refinement(turn: Turn, usual: Refinement) -> str:
    own = turn.refinement(usual)
    differing = [
        f"of {_describe_parents(own)}" if own != usual.model_copy(update={"form": own.form}) else "",
        f"feedback: {FORMS[own.form]}" if own.form != usual.form else "",
    ]
    return f" ({'; '.join(filter(None, differing))})" if any(differing) else ""


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


def limits(experiment: Refining, n_comparisons: int, trained_on: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the limitations; `trained_on`: sentences on what of a set was trained on, by its name."""
    arms = experiment.arms
    needed = next(n for n in range(1, 99) if mcnemar(n, 0) < SIGNIFICANCE)
    trained = trained_turns(arms)
    items = [
        _scope_of_intervals(experiment),
        f"Few tasks can show only large differences: p < 0.05 takes at least {needed} tasks that one arm solves and "
        "the other does not. An unsupported difference may still exist.",
        "Differences in one turn, and intervals in bold, are not corrected for their number."
        if n_comparisons > 1
        else "",
        "Arms of equal budget spend equal numbers of attempts, not of tokens: refining prompts are longer. The "
        "comparison at equal generated tokens ignores prompt tokens, which are processed faster."
        if any(len(arm.turns) > 1 for arm in arms)
        else "",
        "No arm answers first turns with the trained model, so a gain in later turns may come from better answers in "
        "general, not from learning to refine."
        if trained and 1 not in trained
        else "",
        "Two guesses are scored by whole tasks; ARC's official scoring counts each test grid.",
        *(f"`{one.name}`: {VALIDATION}" for one in experiment.evaluation.sets if one.validation),
        *(f"`{name}`: {sentence}" for name, sentences in trained_on.items() for sentence in sentences),
        *(f"`{one.name}`: {one.caveat}" for one in experiment.evaluation.sets if one.caveat),
    ]
    return ["## Limitations", "\n".join(f"- {item}" for item in items if item)]


def _scope_of_intervals(experiment: Refining) -> str:
    """Say which variation the intervals cover. Resampled tasks bring their own sampling noise with them."""
    n_runs = len(experiment.training.seeds) if experiment.training else 0
    if n_runs > 1:
        scope = f"other tasks, other samples and other training runs, estimated from {n_runs} of them"
        few = " Two runs say little about others: such intervals can be too narrow." if n_runs == 2 else ""
        shared = " All runs trained on the same tasks, whose choice the intervals do not cover."
        return f"Intervals of arms with repeated trainings cover {scope}.{few}{shared} Others do not."
    missing = " They do not cover other training runs: there was one." if experiment.adapters else ""
    return f"Intervals cover other tasks and other samples of the same model.{missing}"


def trained_turns(arms: Sequence[Arm]) -> set[int]:
    """Return the numbers of the turns that any arm samples with a trained adapter."""
    return {number for arm in arms for number, turn in enumerate(arm.turns, 1) if turn.adapter != "none"}
