"""Meaning of a config's arms: adapters, seeds, and which of them are compared."""

from typing import Any, get_args

import pytest
import yaml
from checkout import ROOT
from experiments import settings_of
from messages import Wording

from arc_refinery.config import ConfigError, inputs, validate_experiment
from arc_refinery.domains.arc.config import ArcExperiment
from arc_refinery.evaluation.power import Plan
from arc_refinery.jobs import train
from arc_refinery.refining import inputs as refining_inputs
from arc_refinery.refining import jobs
from arc_refinery.refining.config import CONTROLS, FeedbackKind, Refinement, Turn

SEEDS_OF_TRAINING = {"seeds": [0, 1]}


def experiment(
    arms: dict[str, list[dict[str, Any]]],
    training: dict[str, Any] | None = None,
    **evaluation: Any,
) -> ArcExperiment:
    content = yaml.safe_load((ROOT / "tests/refining.yaml").read_text())
    content["training"] |= training or {}
    content["evaluation"]["arms"] = [
        {"name": name, "turns": [{"n_predictions": 8} | turn for turn in turns]} for name, turns in arms.items()
    ]
    content["evaluation"] |= {"primary": None} | evaluation
    for task_set in content["evaluation"]["sets"]:
        task_set["validation"] = False
    return validate_experiment(content, "test", ArcExperiment)


def refused(*arguments: Any, **named: Any) -> str:
    with pytest.raises(ConfigError) as refusal:
        experiment(*arguments, **named)
    return str(refusal.value)


BASE: dict[str, list[dict[str, Any]]] = {"base": [{}], "refined": [{}, {"adapter": "trained"}]}


def test_arms_that_differ_in_seeds_are_repetitions_of_one() -> None:
    settings = experiment(BASE, SEEDS_OF_TRAINING, seeds=[5, 7])
    assert {name: [arm.name for arm in arms] for name, arms in settings.repetitions.items()} == {
        "base": ["base-sampling-5", "base-sampling-7"],
        "refined": [
            "refined-seed-0-sampling-5",
            "refined-seed-0-sampling-7",
            "refined-seed-1-sampling-5",
            "refined-seed-1-sampling-7",
        ],
    }
    assert settings.compared == [("refined", "base")]


def test_a_seed_of_sampling_has_first_turns_of_its_own() -> None:
    arms = {arm.name: arm for arm in experiment(BASE, seeds=[5, 7]).arms}
    assert arms["base-sampling-5"].branch(1) == arms["refined-sampling-5"].branch(1) == "turn1-sampling-5"
    assert arms["refined-sampling-7"].branches == ("turn1-sampling-7", "refined-sampling-7-turn2")


def test_runs_of_a_sweep_are_no_repetitions_of_each_other() -> None:
    sweep = {"sft": None, "sweep": [{"beta": 0.1}, {"beta": 0.2}]} | SEEDS_OF_TRAINING
    settings = experiment(BASE, sweep)
    assert {name: len(arms) for name, arms in settings.repetitions.items()} == {
        "base": 1,
        "refined-beta-0.1": 2,
        "refined-beta-0.2": 2,
    }


def test_three_arms_are_all_compared_and_more_with_the_baseline_and_as_asked() -> None:
    names = ["a", "b", "c", "d"]
    three = experiment({name: [{}] for name in names[:3]})
    assert three.compared == [("b", "a"), ("c", "a"), ("c", "b")]
    four = experiment({name: [{}] for name in names}, comparisons=[["d", "c"], ["b", "a"]])
    assert four.compared == [("b", "a"), ("c", "a"), ("d", "a"), ("d", "c")]


def test_a_comparison_may_name_one_repetition() -> None:
    control = {"control": [{}, {"adapter": "seed-0", "feedback": "none"}]}
    settings = experiment(BASE | control, SEEDS_OF_TRAINING, comparisons=[["control", "refined-seed-0"]])
    assert settings.compared[-1] == ("control", "refined-seed-0")
    assert [arm.name for arm in settings.arms_called("refined-seed-0")] == ["refined-seed-0"]


def test_a_comparison_with_no_arm_is_refused(wording: Wording) -> None:
    no_arm = refused(BASE, comparisons=[["refined", "nobody"]])
    assert no_arm.startswith("test: evaluation.comparisons: nobody")
    wording(no_arm)
    itself = refused(BASE, comparisons=[["base", "base"]])
    assert "comparisons" in itself and "base" in itself
    wording(itself)


def test_a_turn_refines_as_usual_but_for_what_it_says_itself() -> None:
    usual = Refinement(n_parents=4, include_errors=True)
    turn = Turn(n_predictions=8, form="residual")
    assert turn.refinement(usual) == Refinement(n_parents=4, include_errors=True, form="residual")


@pytest.mark.parametrize("key", [{"feedback": "none"}, {"form": "residual"}])
def test_a_first_turn_refines_nothing(key: dict[str, Any], wording: Wording) -> None:
    message = refused({"base": [key]})
    assert message.startswith("test: evaluation.arms.0: base: turn 1 ") and message.endswith(next(iter(key)))
    wording(message)


def test_settings_as_they_are_written_down_are_read_again() -> None:
    written = experiment(BASE, SEEDS_OF_TRAINING, seeds=[1, 2])
    settings = written.model_dump(mode="json", exclude={"resources"})
    assert validate_experiment(settings, "settings.json", ArcExperiment).arms == written.arms


def names(runs: list[list[tuple[Any, Any]]]) -> list[list[tuple[str, str]]]:
    return [[(arm.name, other.name) for arm, other in run] for run in runs]


def test_two_trained_arms_are_paired_by_the_seed_of_their_training() -> None:
    both: dict[str, list[dict[str, Any]]] = {
        "base": [{}],
        "a": [{"adapter": "trained"}],
        "b": [{}, {"adapter": "trained"}],
    }
    settings = experiment(both, SEEDS_OF_TRAINING)
    assert names(settings.paired_runs("a", "b")) == [[("a-seed-0", "b-seed-0")], [("a-seed-1", "b-seed-1")]]
    assert names(settings.paired_runs("a", "base")) == [[("a-seed-0", "base")], [("a-seed-1", "base")]]
    assert names(settings.paired_runs("a-seed-0", "b-seed-1")) == [[("a-seed-0", "b-seed-1")]]


def test_samplings_of_one_training_are_one_run() -> None:
    settings = experiment({"base": [{}], "a": [{"adapter": "trained"}]}, SEEDS_OF_TRAINING, seeds=[5, 6])
    assert names(settings.paired_runs("a", "base")) == [
        [("a-seed-0-sampling-5", "base-sampling-5"), ("a-seed-0-sampling-6", "base-sampling-6")],
        [("a-seed-1-sampling-5", "base-sampling-5"), ("a-seed-1-sampling-6", "base-sampling-6")],
    ]


def test_samplings_of_the_same_model_are_one_run() -> None:
    settings = experiment({"base": [{}], "a": [{}, {}]}, seeds=[5, 6])
    assert names(settings.paired_runs("a", "base")) == [
        [("a-sampling-5", "base-sampling-5"), ("a-sampling-6", "base-sampling-6")]
    ]


def test_an_arm_is_not_compared_with_itself_under_another_name(wording: Wording) -> None:
    arms: dict[str, list[dict[str, Any]]] = {"base": [{}], "a": [{"adapter": "trained"}]}
    message = refused(arms, SEEDS_OF_TRAINING, comparisons=[["a", "a-seed-0"]])
    assert message.startswith("test: evaluation.comparisons: [a, a-seed-0]")
    wording(message)


@pytest.mark.parametrize("turn", [1, 2, 9])
def test_the_turn_of_the_primary_comparison_is_one_that_both_arms_have_for_themselves(
    turn: int, wording: Wording
) -> None:
    arms: dict[str, list[dict[str, Any]]] = {"base": [{}], "a": [{}, {}], "b": [{}, {"feedback": "none"}]}
    primary = {"set": "heldout", "arms": ["b", "a"], "turn": turn}
    if turn == 2:
        assert experiment(arms, primary=primary).evaluation.primary is not None
    else:
        message = refused(arms, primary=primary)
        assert message.startswith(f"test: evaluation.primary.turn is {turn};") and "b − a" in message
        wording(message)


def test_a_primary_comparison_may_be_a_difference_of_differences(wording: Wording) -> None:
    arms: dict[str, list[dict[str, Any]]] = {
        "base": [{}, {"n_predictions": 64}],
        "base-twin": [{}, {"n_predictions": 64, "feedback": "twin"}],
        "a": [{}, {"n_predictions": 64, "adapter": "trained"}],
        "a-twin": [{}, {"n_predictions": 64, "adapter": "trained", "feedback": "twin"}],
    }
    compared: dict[str, Any] = {"comparisons": [["base", "base-twin"], ["a", "a-twin"]]}
    contrast = {"set": "heldout", "arms": ["a", "a-twin"], "minus": ["base", "base-twin"], "turn": 2}
    settings = experiment(arms, primary=contrast, **compared)
    assert "(a − a-twin) − (base − base-twin)" in settings.expected_power
    assert settings.plan == Plan.of("arc", 50, 32)  # the noise of four rates: twice that of two
    wording(settings.expected_power)
    for change, reason in (
        ({"turn": None}, "add `turn`"),
        ({"minus": ["a", "base-twin"]}, "[a, base-twin] are not compared"),
    ):
        message = refused(arms, primary=contrast | change, **compared)
        assert reason in message
        wording(message)


def test_every_control_has_a_text() -> None:
    assert {*get_args(FeedbackKind)} == {"real", *CONTROLS}


def test_a_config_knows_what_its_primary_comparison_is_expected_to_detect(wording: Wording) -> None:
    arms: dict[str, list[dict[str, Any]]] = {"base": [{}, {}], "refined": [{}, {"n_predictions": 64}]}
    for turn in (None, 2):
        primary = {"set": "heldout", "arms": ["refined", "base"], "turn": turn}
        line = experiment(arms, primary=primary).expected_power
        assert "50 tasks of heldout" in line
        expected = Plan.of("arc", 50, 8).detects()  # attempts of the arm with fewer
        assert (f" {100 * expected:.1f} points" in line) == (turn == 2)  # 50 tasks are too few to show tasks solved
        wording(line)
    trained: dict[str, list[dict[str, Any]]] = {"base": [{}, {}], "refined": [{}, {"adapter": "trained"}]}
    for seeds in ([0, 1], [0, 1, 2]):
        line = experiment(trained, {"seeds": seeds}, primary=primary).expected_power
        expected = Plan.of("arc", 50, 8).detects(3)
        assert (f" {100 * expected:.1f} points" in line) == (len(seeds) == 3)  # two are too few
        wording(line)
    assert experiment(arms).expected_power == ""
    of_file = {"name": "heldout", "source": "dataset", "path": "tasks.json"}
    assert experiment(arms, sets=[of_file], primary=primary).expected_power == ""  # nobody has counted them


def test_the_primary_comparison_may_be_of_a_run_of_a_sweep() -> None:
    arms: dict[str, list[dict[str, Any]]] = {"base": [{}], "a": [{"adapter": "trained"}]}
    sweep = {"sft": None, "sweep": [{"beta": 0.02}, {"beta": 0.5}]}
    settings = experiment(arms, sweep, primary={"set": "heldout", "arms": ["a-beta-0.02", "base"]})
    assert settings.evaluation.primary is not None


def test_the_primary_comparison_is_one_that_is_made_on_a_set_that_there_is(wording: Wording) -> None:
    arms: dict[str, list[dict[str, Any]]] = {"a": [{}], "b": [{}], "c": [{}], "d": [{}]}
    settings = experiment(arms, primary={"set": "heldout", "arms": ["b", "a"], "turn": None})
    assert settings.evaluation.primary is not None
    other_set = refused(arms, primary={"set": "other", "arms": ["b", "a"]})
    assert other_set.startswith("test: evaluation.primary: other")
    assert "arc-agi-1-evaluation, heldout" in other_set
    wording(other_set)
    not_compared = refused(arms, primary={"set": "heldout", "arms": ["c", "b"]})
    assert not_compared.startswith("test: evaluation.primary: [c, b]")
    assert "[b, a]; [c, a]; [d, a]" in not_compared
    wording(not_compared)


def test_the_primary_comparison_is_not_on_a_set_that_settings_are_chosen_on(wording: Wording) -> None:
    content = yaml.safe_load((ROOT / "tests/refining.yaml").read_text())
    assert content["evaluation"]["primary"]["set"] == "heldout"
    content["evaluation"]["sets"][1]["validation"] = True
    with pytest.raises(ConfigError) as caught:
        validate_experiment(content, "test", ArcExperiment)
    assert "evaluation.primary" in str(caught.value) and "heldout" in str(caught.value)
    wording(caught.value)


# forms of feedback


def test_a_turn_can_choose_its_form_of_feedback() -> None:
    settings = experiment({"base": [{}], "usual": [{}, {}], "own": [{}, {"form": "residual"}]})
    turns = [jobs.refining_prompts(settings, "heldout", branch) for branch in ("usual-turn2", "own-turn2")]
    assert [settings_of(turn)["refinement"]["form"] for turn in turns] == ["", "residual"]


KEPT: dict[str, Any] = {"keep_steps": [20, 10]}


def keeping(**more: Any) -> dict[str, Any]:
    """A training of 30 steps with a checkpoint every 10."""
    grpo = yaml.safe_load((ROOT / "tests/refining.yaml").read_text())["training"]["grpo"]
    return {"grpo": grpo | {"max_steps": 30, "save_steps": 10}} | more


def test_an_arm_over_all_kept_steps_is_one_arm_per_step() -> None:
    arms = BASE | {"steps": [{}, {"adapter": "trained@*"}]}
    settings = experiment(arms, keeping(**KEPT))
    assert settings.kept_adapters == ["trained@10", "trained@20"]
    assert {arm.name: arm.branch(2) for arm in settings.arms if "@" in arm.name} == {
        "steps@10": "steps@10-turn2",
        "steps@20": "steps@20-turn2",
    }
    assert settings.sampled("heldout", "steps@20-turn2").adapter == "trained@20"
    assert refining_inputs.adapter(settings, "heldout", "steps@20-turn2") == ["<results>/adapters/trained@20"]
    assert [pair[0] for pair in settings.compared] == ["refined", "steps@10", "steps@20"]


def test_steps_of_several_trainings_are_repetitions_of_one() -> None:
    settings = experiment(BASE | {"steps": [{}, {"adapter": "trained@*"}]}, keeping(**KEPT, **SEEDS_OF_TRAINING))
    assert [arm.name for arm in settings.repetitions["steps@20"]] == ["steps@20-seed-0", "steps@20-seed-1"]
    assert [arm.turns[1].adapter for arm in settings.repetitions["steps@20"]] == ["seed-0@20", "seed-1@20"]
    assert settings.seed_of("seed-1@20") == 1
    first = experiment(BASE | {"steps": [{}, {"adapter": "seed-1@*"}]}, keeping(**KEPT, **SEEDS_OF_TRAINING))
    assert [arm.turns[1].adapter for arm in first.arms if "@" in arm.name] == ["seed-1@10", "seed-1@20"]


def test_a_series_over_steps_begins_and_ends_with_the_arms_without_it() -> None:
    arms = BASE | {"untrained": [{}, {}], "steps": [{}, {"adapter": "trained@*"}]}
    settings = experiment(arms, keeping(**KEPT, **SEEDS_OF_TRAINING))
    assert settings.over_steps == {"steps": {0: "untrained", 10: "steps@10", 20: "steps@20", 30: "refined"}}
    alone = experiment({"base": [{}], "steps": [{"adapter": "trained@*"}]}, keeping(**KEPT))
    assert alone.over_steps == {"steps": {0: "base", 10: "steps@10", 20: "steps@20"}}
    swept = keeping(**KEPT, sweep=[{"beta": 0.1}, {"beta": 0.2, "max_steps": 40}])
    assert experiment(arms, swept).over_steps == {
        "steps-beta-0.1": {0: "untrained", 10: "steps@10-beta-0.1", 20: "steps@20-beta-0.1", 30: "refined-beta-0.1"},
        "steps-beta-0.2-max-steps-40": {
            0: "untrained",
            10: "steps@10-beta-0.2-max-steps-40",
            20: "steps@20-beta-0.2-max-steps-40",
            40: "refined-beta-0.2-max-steps-40",
        },
    }


def test_one_kept_step_can_be_asked_for(wording: Wording) -> None:
    settings = experiment(BASE | {"early": [{"adapter": "trained@10"}]}, keeping(**KEPT))
    assert settings.arms[-1].branches == ("turn1-trained@10",)
    message = refused(BASE | {"late": [{}, {"adapter": "trained@30"}]}, keeping(**KEPT))
    assert message.startswith("test: evaluation.arms: late")
    assert "trained@30" in message and "none, sft, trained, trained@10, trained@20" in message
    wording(message)


def test_each_part_of_a_training_follows_the_one_before() -> None:
    settings = experiment(BASE, keeping(keep_every=10))
    folders = {name: inputs.kept_before(settings, name) for name in (*settings.kept_adapters, "trained")}
    assert folders == {
        "trained@10": [],
        "trained@20": ["<results>/adapters/trained@10"],
        "trained": ["<results>/adapters/trained@20"],
    }
    parts = {name: settings_of(train(settings, name)) for name in folders}
    last_steps = {name: part["until_step"] for name, part in parts.items()}
    assert last_steps == {"trained@10": 10, "trained@20": 20, "trained": None}
    assert parts["trained@10"] == parts["trained"] | {"until_step": 10}


def test_an_arm_over_steps_needs_kept_ones(wording: Wording) -> None:
    said = refused(BASE | {"steps": [{}, {"adapter": "trained@*"}]}, keeping())
    assert said.startswith("test: evaluation.arms: steps")
    wording(said)


@pytest.mark.parametrize(
    ("training", "key", "other"),
    [
        (keeping(keep_steps=[15]), "keep_steps: 15", "grpo.save_steps = 10"),
        (keeping(keep_steps=[10, 30]), "keep_steps: 30", "grpo.max_steps = 30"),
        (keeping(keep_steps=[10], keep_every=10), "keep_steps", "keep_every"),
        (keeping(keep_every=15), "keep_every: 15", "grpo.save_steps = 10"),
        (keeping(keep_every=10, sweep=[{"save_steps": 20}]), "keep_every: 10", "grpo.save_steps = 20"),
    ],
)
def test_kept_steps_are_checkpoints_before_the_last_step(
    training: dict[str, Any], key: str, other: str, wording: Wording
) -> None:
    message = refused(BASE, training)
    assert message.startswith(f"test: training.{key}")
    assert other in message
    wording(message)


def test_each_multiple_needs_a_known_last_step(wording: Wording) -> None:
    training = keeping(keep_every=10)
    training["grpo"]["max_steps"] = -1
    message = refused(BASE, training)
    assert message.startswith("test: training.keep_every") and "grpo.max_steps" in message
    wording(message)
