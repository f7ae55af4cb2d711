"""What a domain from outside gets without code of its own: tasks from rows, records, its keys in stages."""

import json
import sys
from collections import Counter
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from checkout import TINY
from environments.letters.domain import Domain, Grade, Word
from experiments import settings_of

from arc_refinery import cli, records, stages
from arc_refinery.config import ConfigError, Sandbox, check_files, validate_experiment
from arc_refinery.config.loading import domain_sources
from arc_refinery.domains.domain import Answer, GradedAttempt
from arc_refinery.domains.first_turn import first_turn_prompts
from arc_refinery.domains.prompts import Renderer
from arc_refinery.errors import InputError
from arc_refinery.jobs import Job, settings_text
from arc_refinery.refining import inputs, jobs
from arc_refinery.refining.config import Refining, RowsSet, Sampling
from arc_refinery.refining.grading import verdict_of

ROWS: list[Any] = [{"word": "ab"}, {"word": "1"}, {"word": "cd", "task_id": "mine"}, {"word": "ef"}]


def tasks(tmp_path: Path, rows: list[Any], left_out: Counter[str] | None = None, **changes: Any) -> list[Word]:
    path = tmp_path / "words.json"
    path.write_text(json.dumps(rows))
    task_set = RowsSet(name="words", path=str(path), **changes)
    return list(Domain().tasks_of_set(task_set, Counter() if left_out is None else left_out, Sandbox(), "heldout"))


# tasks


def test_a_task_has_the_id_of_its_row_or_its_number(tmp_path: Path):
    left_out: Counter[str] = Counter()
    expected = [Word("words-000001", "ab"), Word("mine", "cd"), Word("words-000004", "ef")]
    assert tasks(tmp_path, ROWS, left_out) == expected
    assert left_out == {"the row gives no task": 1}
    assert tasks(tmp_path, ROWS, n_tasks=2) == expected[:2]
    assert tasks(tmp_path, ROWS, first_row=1) == expected[1:]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([{"word": "ab"}, ["ab"]], r"words\.json: row 2 is a list; expected an object"),
        ([{"text": "ab"}], r"words\.json: row 1: field 'word' is missing"),
        ([{"word": "ab", "task_id": "a/b"}], r"words\.json: row 1: field 'task_id' is 'a/b'"),
        ([{"word": "ab", "task_id": "a"}, {"word": "cd", "task_id": "a"}], "row 2: a row before it is called a"),
        ([{"word": "1"}], r"words\.json: no row .*gives a task"),
    ],
)
def test_rows_of_another_shape_are_refused(tmp_path: Path, rows: list[Any], expected: str):
    with pytest.raises(InputError, match=expected):
        tasks(tmp_path, rows)


# records


def test_prompts_hold_their_task_and_verdicts_their_grade(tmp_path: Path):
    domain, word = Domain(), Word("w", "cats")
    (prompt,) = first_turn_prompts(domain, [word], 1, Sampling(max_output_tokens=8), "letters", Renderer(TINY), 0)
    assert domain.subject(prompt) == word
    attempt = records.Attempt(
        attempt_id="w/turn1-000/000",
        prompt_id=prompt.prompt_id,
        task_id="w",
        turn=1,
        parent_id="",
        model="m",
        adapter="",
        seed=0,
        temperature=1.0,
        top_p=1.0,
        completion="a cow",
        n_prompt_tokens=prompt.n_tokens,
        n_tokens=2,
        finish_reason="stop",
        logprob=-1.0,
    )
    (grade,) = domain.grade([Answer(attempt.completion, word)], ())
    verdict: Any = verdict_of(domain, attempt, word, grade)
    assert verdict.detail == Grade("ok", "", "", "ts", 0.5)
    for record in (prompt, verdict):
        path = tmp_path / f"{record.KIND}.parquet"
        records.write(path, type(record), [record], 0, {})
        assert list(records.read(path, type(record))) == [record]
    read = domain.grade_of(GradedAttempt(prompt, attempt, verdict))
    assert domain.feedback(prompt, read, "letters") == "Your text lacks t, s. Write a better text."
    assert domain.feedback(prompt, read, "count") == "Your text lacks 2 of the letters. Write a better text."


def test_a_domain_that_executes_nothing_opens_no_sandbox():
    with Domain().executors(None, 1) as executors:  # type: ignore[arg-type]
        assert executors == ()


# wording


def test_a_domain_with_one_wording_has_no_templates(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    with pytest.raises(InputError, match="template is 'words', but the domain has one wording"):
        Domain().wording("words", "")
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "environments")
    command = cli.parse(["prompts", "export", "--domain", "letters", "--output", str(tmp_path / "x")])
    with pytest.raises(InputError, match="the domain has no wording that can be edited"):
        command.run()
    assert not (tmp_path / "x").exists()


def test_the_files_of_a_template_folder_are_inputs(own_keys: str, tmp_path: Path):
    def asking_with(template: str) -> Refining:
        model = {"path": TINY, "window": 100, "template": template}
        return validate_experiment(content(own_keys, model=model), "mine.yaml", Refining)

    texts = tmp_path / "texts"
    (texts / "more").mkdir(parents=True)
    for name in ("ask.txt", "more/again.txt", ".ask.swp"):
        (texts / name).write_text("text")
    assert asking_with(str(texts)).template_files() == [str(texts / "ask.txt"), str(texts / "more/again.txt")]
    assert asking_with("plain").template_files() == asking_with("x" * 300).template_files() == []  # names
    with pytest.raises(ConfigError, match=r"model\.template.*/nope"):
        check_files(asking_with("/nope"), "mine.yaml", contents=False)


def test_the_modules_of_a_package_are_inputs_but_not_its_tests(own_keys: str, tmp_path: Path):
    for name in ("test_it.py", "conftest.py", "tasks.json", "more/grading.py"):
        path = tmp_path / own_keys / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("")
    experiment = validate_experiment(content(own_keys), "mine.yaml", Refining)
    modules = [str(tmp_path / own_keys / f"{name}.py") for name in ("__init__", "config", "domain", "more/grading")]
    assert inputs.domain_code(experiment) == modules
    assert inputs.task_set(experiment, "small") == ["w.json", *modules]
    assert inputs.grpo_inputs(experiment)["domain"] == modules
    assert set(modules) <= set(inputs.report_inputs(experiment))
    assert domain_sources("arc") == domain_sources("code") == []


# stages

OWN_KEYS = """
    from arc_refinery.config import PositiveInt
    from arc_refinery.config.base import Strict
    from arc_refinery.refining import config

    class Problems(config.Problems):
        longest: PositiveInt = 9

    class Hints(Strict):
        n_hints: PositiveInt = 1

    class TaskSet(config.RowsSet):
        longest: PositiveInt = 9

    class Experiment(config.RowsExperiment):
        problems: Problems | None = None
        evaluation: config.Evaluation[TaskSet]
        hints: Hints = Hints()

        @classmethod
        def section_types(cls):
            return super().section_types() | {"own": Hints}

        def own_of(self, tasks):
            return self.hints
    """


@pytest.fixture
def own_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a domain with keys of its own."""
    (tmp_path / "own_keys").mkdir()
    for name, source in {"__init__": "", "config": OWN_KEYS, "domain": "from letters.domain import Domain"}.items():
        (tmp_path / f"own_keys/{name}.py").write_text(dedent(source))
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "environments")
    monkeypatch.syspath_prepend(tmp_path)
    for name in [name for name in sys.modules if name.startswith("own_keys")]:
        monkeypatch.delitem(sys.modules, name)
    return "own_keys"


def content(domain: str, **changes: Any) -> dict[str, Any]:
    return {
        "experiment": "tiny",
        "domain": domain,
        "model": {"path": TINY, "window": 100},
        "sampling": {"max_output_tokens": 16},
        "evaluation": {
            "sets": [{"name": "small", "path": "w.json"}],
            "arms": [{"name": "a", "turns": [{"n_predictions": 2}]}],
        },
        **changes,
    }


def arguments(stage: str, job: Job, experiment: Any, **files: str) -> dict[str, Any]:
    flags = {name: [path] for name, path in files.items()}
    return stages.validated(stages.load(stage, "refining"), settings_of(job), flags, type(experiment))


def test_keys_of_a_domain_reach_the_stages_that_read_them(own_keys: str):
    config = content(own_keys, problems={"path": "w.json", "longest": 3}, parts={"n_parts": 1})
    config["hints"] = {"n_hints": 2}
    config["evaluation"]["sets"][0]["longest"] = 4
    experiment: Any = validate_experiment(config, "mine.yaml")
    split = arguments("tasks", jobs.tasks(experiment), experiment, output="t")
    assert split["problems"] == experiment.problems
    collected = arguments("evaluation_tasks", jobs.evaluation_tasks(experiment, "small"), experiment, output="t")
    assert collected["task_set"] == experiment.evaluation.sets[0]
    first = jobs.first_prompts(experiment, "small", "turn1")
    assert arguments("first_prompts", first, experiment, tasks="t", output="p")["own"].n_hints == 2


def test_a_key_that_the_domain_does_not_know_is_refused(own_keys: str):
    config = content(own_keys)
    settings = settings_of(jobs.evaluation_tasks(validate_experiment(config, "mine.yaml", Refining), "small"))
    settings["task_set"]["longer"] = 4
    with pytest.raises(InputError, match=r"stage evaluation_tasks: task_set\.longer is not a known key"):
        stages.call("evaluation_tasks", settings, {"output": ["t"]})


def test_without_keys_of_its_own_a_domain_has_those_of_rows(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "environments")
    experiment = validate_experiment(content("letters"), "mine.yaml", Refining)
    collected = arguments("evaluation_tasks", jobs.evaluation_tasks(experiment, "small"), experiment, output="t")
    assert type(collected["task_set"]) is RowsSet
    assert type(collected["domain"]).__module__ == "letters.domain"
    assert "max_cells" not in collected  # of arc


def test_settings_of_a_run_are_a_config(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "environments")
    experiment = validate_experiment(content("letters"), "mine.yaml")
    text = settings_text(experiment)
    assert validate_experiment(json.loads(text), "settings.json") == experiment
