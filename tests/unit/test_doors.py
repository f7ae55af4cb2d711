"""Changes that docs/development.md describes, made as it says: in a copy of the package, or in a config alone."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from textwrap import dedent

import pytest
import yaml
from checkout import ROOT
from environments.letters.domain import Domain as Letters
from experiments import arguments_of, settings_of
from factories import make_grid

from arc_refinery import cli, jobs
from arc_refinery.arc.tasks import Pair, Task
from arc_refinery.config import check_files, validate_experiment
from arc_refinery.domains.arc.config import ArcExperiment, Grade
from arc_refinery.domains.arc.prompts import execution_feedback, load_template
from arc_refinery.domains.arc.sources import tasks_of_set
from arc_refinery.domains.domain import Domain
from arc_refinery.refining.config.rewards import ScoredAttempt
from arc_refinery.sampling.library_arguments import grpo_settings
from arc_refinery.training.rewards import Reward

PAGE = (ROOT / "docs/development.md").read_text()


class Copy:
    """A copy of the package, to be changed in the files that a row of docs/development.md names."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        shutil.copytree(ROOT / "workflow/arc_refinery", folder / "arc_refinery")

    def change(self, door: str, file: str, old: str, new: str) -> None:
        """Replace a text that the file has once."""
        (row,) = (line for line in PAGE.splitlines() if line.startswith(f"| {door} |"))
        assert f"`{file}`" in row
        path = self.folder / "arc_refinery" / file
        text = path.read_text()
        assert text.count(old) == 1
        path.write_text(text.replace(old, new))

    def run(self, program: str, *arguments: str) -> str:
        """Run a program with the changed package and return what it prints."""
        paths = os.pathsep.join([str(self.folder), str(ROOT / "tests")])
        done = subprocess.run(
            [sys.executable, "-c", dedent(program), *arguments],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": paths},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture
def package(tmp_path: Path) -> Copy:
    return Copy(tmp_path)


def demo(**changes: object) -> ArcExperiment:
    """The demo's experiment with other keys of `training.grpo`."""
    content = yaml.safe_load((ROOT / "config/config.yaml").read_text())
    content["training"]["grpo"] |= changes
    return validate_experiment(content, "config.yaml", ArcExperiment)


def test_the_files_and_tests_that_the_page_names_exist():
    table = PAGE.partition("## I want to change ...")[2].partition("\n## ")[0]
    named = [ROOT / "workflow/arc_refinery" / file for file in re.findall(r"`([a-z_]+/[a-z_/]+\.py)`", table)]
    named += [ROOT / "tests/unit" / test for test in re.findall(r"(?<![/\w])test_\w+\.py", table)]
    assert len(named) > 40
    assert [str(path) for path in named if not path.exists()] == []


# in a copy of the package


@pytest.mark.slow
def test_a_built_in_reward_is_a_function_and_its_name_in_a_table(package: Copy):
    rewards = "domains/arc/config/rewards.py"
    package.change(
        "a reward",
        rewards,
        "REWARDS = ",
        'def any_grid(grade: Grade) -> float:\n    """1 if a grid is correct, else 0"""\n'
        "    return float(grade.correct_grids > 0.0)\n\n\nREWARDS = ",
    )
    package.change("a reward", rewards, "staged, solved)", "staged, any_grid, solved)")
    package.run(
        """
        from factories import make_grid
        from arc_refinery.refining.config import AttemptTerm
        from arc_refinery.domains.arc.config import ArcExperiment, Grade
        from arc_refinery.domains.arc.domain import Domain
        from arc_refinery.training.rewards import Reward

        right, wrong = make_grid("12"), make_grid("21")
        reward = Reward([AttemptTerm(reward="any-grid")], ArcExperiment.program_rewards)
        assert "any-grid" in Domain.program_rewards, "so a parent has it, too"
        grades = [Grade("ok", "", "", (right, wrong), (right, truth), 2) for truth in (right, wrong)]
        grades.append(Grade("ok", "", "", (wrong,), (right,), 1))
        assert reward.values(grades) == {"any-grid": [1.0, 1.0, 0.0]}
        """
    )


@pytest.mark.slow
def test_a_control_of_the_feedback_is_three_places_in_two_files(package: Copy):
    config, prompts = "refining/config/evaluation.py", "refining/next_turn.py"
    door = "an arm's feedback"
    package.change(door, config, '"other-rule"]', '"other-rule", "worst"]')
    package.change(
        door, config, '    "none": "no results",\n', '    "none": "no results",\n    "worst": "the worst results",\n'
    )
    package.change(
        door,
        prompts,
        '            case "none":\n',
        '            case "worst":\n'
        "                yield [after(parent, parents[-1]) for parent in best]\n"
        '            case "none":\n',
    )
    package.run(
        """
        from dataclasses import replace
        from factories import ARC, make_attempt, make_grid, make_prompt, make_verdict
        from arc_refinery.refining.config import Turn
        from arc_refinery.domains.domain import GradedAttempt
        from arc_refinery.domains.arc.prompts import COMPACT
        from arc_refinery.refining.next_turn import NextTurnPlan, next_turn_prompts
        from arc_refinery.domains.prompts import Renderer
        from arc_refinery.refining.stages import refining_prompts

        assert Turn(n_predictions=1, feedback="worst").control
        assert "worst" in str(refining_prompts.__annotations__["feedback"])
        renderer = Renderer("workflow/models/tiny")
        prompt = make_prompt()
        graded = []
        for name, grid in (("a", make_grid("55", "55")), ("b", make_grid("66", "66"))):
            attempt = make_attempt(prompt, attempt_id=name, completion=f"answer {name}")
            verdict = make_verdict(attempt, train_outputs=(grid,), fingerprint=name, train_correct_grids=0.0)
            graded.append(GradedAttempt(prompt, attempt, verdict))
        plan = NextTurnPlan("x-turn2", 2, 2, 2, 1, False, feedback="worst")
        prompts = next_turn_prompts(ARC, graded, plan, COMPACT, renderer)
        texts = {prompt.parent_id: prompt.messages[-1]["content"] for prompt in prompts}
        assert all("66" in text and "55" not in text for text in texts.values()), texts
        """
    )


@pytest.mark.slow
def test_a_column_of_the_comparisons_is_one_entry(package: Copy):
    package.change(
        "a column",
        "reporting/tables.py",
        '    "points": DIFFERENCE["points"],\n',
        '    "ratio": (lambda c: f"{c.n_first / c.n_second:.2f}", "solved by the first, divided by the second"),\n'
        '    "points": DIFFERENCE["points"],\n',
    )
    printed = package.run(
        """
        from arc_refinery.evaluation.statistics import compare
        from arc_refinery.reporting import summary
        from arc_refinery.reporting.compare import EXPLAINED
        from arc_refinery.reporting.tables import COMPARISON
        from arc_refinery.reporting.markdown import columns_table

        print(columns_table(COMPARISON, [compare("a", "b", [[1, 1, 1, 0]], [[1, 0, 1, 0]])]))
        assert all("- **ratio**: solved by the first" in text for text in (EXPLAINED, summary.METRICS_EXPLAINED))
        """
    )
    header, _, row = (line.split(" | ") for line in printed.splitlines())
    assert row[header.index("ratio")] == "1.50"


def test_a_sampler_is_a_module_and_its_record(package: Copy):
    (package.folder / "arc_refinery/sampling/echo_sampler.py").write_text(
        dedent(
            """
            from arc_refinery.sampling.backends import Sample


            class EchoSampler:
                def __init__(self, model, adapter, decoding, tokenizer):
                    self.ends = frozenset([tokenizer.eos_token_id])

                def sample(self, requests):
                    for request in requests:
                        yield {request.request_id: [Sample(list(request.ids), "length", 0.0)] * request.n}

                def sample_turns(self, contexts, seeds):
                    return [list(context) for context in contexts]
            """
        )
    )
    door, sampling = "a sampler", "sampling/"
    config, vllm = "config/sampling.py", '    "vllm": Backend(\n'
    echo = '    "echo": Backend("echo", "arc_refinery.sampling.echo_sampler:EchoSampler"),\n'
    package.change(door, config, vllm, echo + vllm)
    package.change(door, config, '"endpoint", "answers"]', '"endpoint", "answers", "echo"]')
    counted = '        case "transformers":\n            yield'
    package.change(
        door, f"{sampling}gpu_memory.py", counted, counted.replace('"transformers"', '"transformers" | "echo"')
    )
    package.run(
        """
        from types import SimpleNamespace
        import yaml
        from arc_refinery.config import validate_experiment
        from experiments import arguments_of, settings_of
        from arc_refinery.refining import jobs
        from arc_refinery.sampling.backends import Decoding, Request, open_sampler
        from arc_refinery.sampling.gpu_memory import counts

        content = yaml.safe_load(open("config/config.yaml"))
        content["model"]["backend"] = "echo"
        content["resources"] = {"sample": {"gpus": 1, "gpu_mem_mb": 40000}}
        experiment = validate_experiment(content, "echo.yaml")
        assert [count.job for count in counts(experiment)] == ["sample"]
        model = arguments_of("sample", settings_of(jobs.sample(experiment, "heldout", "turn1")))["model"]
        assert model.backend == "echo"
        sampler = open_sampler(model, None, Decoding(1.0, 1.0, 8), SimpleNamespace(eos_token_id=0))
        (sampled,) = sampler.sample([Request("a", "a", [5, 6], 2, 0)])
        assert [sample.ids for sample in sampled["a"]] == [[5, 6], [5, 6]]
        """
    )


@pytest.mark.slow
def test_a_logged_metric_is_an_entry_and_its_title(package: Copy):
    door = "a logged metric"
    package.change(
        door,
        "training/rewards.py",
        '        "reward/min":',
        '        "reward/range": max(c.reward for c in completions) - min(c.reward for c in completions),\n'
        '        "reward/min":',
    )
    package.change(
        door,
        "reporting/training_curves.py",
        '    "reward/max":',
        '    "reward/range": "range of rewards",\n    "reward/max":',
    )
    printed = package.run(
        """
        import json, sys
        from pathlib import Path
        from arc_refinery.reporting.training import training_table
        from arc_refinery.reporting.training_curves import read_log
        from arc_refinery.training.rewards import ScoredCompletion, step_metrics

        metrics = step_metrics([ScoredCompletion([1], False, reward, "ok", False) for reward in (1.0, 4.0)], 2)
        log = Path(sys.argv[1], "training.jsonl")
        log.write_text(json.dumps({"step": 1, "reward": 2.5, **metrics}) + "\\n")
        print(training_table(read_log(log)))
        """,
        str(package.folder),
    )
    (row,) = (line for line in printed.splitlines() if line.startswith("| range of rewards |"))
    assert row.split("|")[2].strip().startswith("3")


# in a config alone


def test_a_keyword_of_trl_is_a_key_of_the_config(tmp_path: Path):
    experiment = demo(trl={"top_entropy_quantile": 0.2})
    training = arguments_of("train", settings_of(jobs.train(experiment, "trained")))["grpo"]
    assert grpo_settings(experiment.model, training, {}, 0, tmp_path, False, False)["top_entropy_quantile"] == 0.2


def test_a_reward_of_the_user_is_a_function_in_a_file(tmp_path: Path):
    (tmp_path / "mine.py").write_text("def score(attempt):\n    return 100 - attempt.n_tokens\n")
    experiment = demo(rewards=["solved", {"reward": f"{tmp_path}/mine.py:score", "weight": 0.5}])
    check_files(experiment, "config.yaml")
    attempt = ScoredAttempt(
        grade=Grade("error"),
        task_id="t",
        completion="",
        n_tokens=40,
        is_truncated=False,
        repetition=0.0,
        reward=0.0,
        parent_reward=None,
    )
    reward = Reward(experiment.rewards, experiment.reward_functions)
    assert reward.weighted(reward.values([attempt])) == [[0.0, 30.0]]


def test_a_wording_is_exported_and_edited(tmp_path: Path):
    folder = tmp_path / "mine"
    cli.parse(["prompts", "export", "--output", str(folder)]).run()
    feedback = json.loads((folder / "feedback.json").read_text())
    (folder / "feedback.json").write_text(json.dumps(feedback | {"tail": "\nPlease try again."}))
    grid = make_grid("12")
    task = Task("t", (Pair(grid, grid),), (Pair(grid, grid),), "")
    before, after = (
        execution_feedback(task, (make_grid("21"),), load_template(name)) for name in ("words", str(folder))
    )
    assert after == before.replace(feedback["tail"], "\nPlease try again.") != before


def test_a_folder_of_tasks_is_a_source(tmp_path: Path):
    pair = {"input": [[1, 2]], "output": [[2, 1]]}
    for task_id in ("007bbfb7", "00d62c1b"):
        (tmp_path / f"{task_id}.json").write_text(json.dumps({"train": [pair], "test": [pair]}))
    content = yaml.safe_load((ROOT / "config/config.yaml").read_text())
    content["evaluation"]["sets"] = [{"name": "heldout", "source": "dataset", "path": str(tmp_path), "shards": 1}]
    experiment = validate_experiment(content, "config.yaml", ArcExperiment)
    check_files(experiment, "config.yaml")
    tasks = list(tasks_of_set(experiment.evaluation.sets[0], Counter()))
    assert [task.task_id for task in tasks] == ["007bbfb7", "00d62c1b"]


def test_a_domain_has_the_members_that_the_page_names():
    section = PAGE.partition("## A domain\n")[2].partition("\n## ")[0]
    tables = re.findall(r"\| member[^\n]*\n\|[-|]+\n((?:\|[^\n]*\n)+)", section)
    needed, further = ([re.findall(r"`(\w+)", row.split("|")[1]) for row in table.splitlines()] for table in tables)
    known = {name for names in [*needed, *further] for name in names}
    assert (len(needed), len(known) > 20) == (6, True)
    assert known - {*dir(Domain), *Domain.__annotations__} == set()
    own = {name for name in vars(Letters) if not name.startswith("_")}
    assert {name for (name,) in needed} <= own  # it runs with these: tests/workflow/test_letters.py
    assert own - known == {"prompt_class", "verdict_class"}  # made from the classes of tasks and grades
