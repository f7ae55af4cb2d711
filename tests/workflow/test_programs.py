"""Domain `code` from rows to the report, with answers written by hand where a model would sample."""

from pathlib import Path

import handmade_programs as handmade
import pandas as pd
import pytest
import yaml
from checkout import Checkout, copy, n_attempts
from hall import wider_ends

from arc_refinery import records
from arc_refinery.domains.code.grading import Prompt, Verdict

pytestmark = [pytest.mark.snakemake, pytest.mark.training]

CONFIG, FOLDER = "results/programs.yaml", "results/programs"
TRAINING_ROWS, ROWS = "results/training.jsonl", "results/rows.jsonl"
RUN = ["--cores", "2", "--configfile", CONFIG, "--quiet", "rules"]
END = "Correct the program. Write the whole program in one ```python block, without tests."


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    checkout = copy(tmp_path_factory.mktemp("programs"))
    handmade.write_rows(
        checkout.folder / ROWS, ["double", "empty", "largest", "wrong", "parity", "mirror", "again", "add"]
    )
    handmade.write_rows(checkout.folder / TRAINING_ROWS, ["empty", "negate", "length", "add"])
    content = handmade.settings(TRAINING_ROWS, ROWS, handmade.stand_in(tmp_path_factory.mktemp("environment")))
    (checkout.folder / CONFIG).write_text(yaml.safe_dump(content))
    done = checkout.snakemake(*RUN)
    assert done.returncode == 0, done.stdout + done.stderr
    return checkout


@pytest.fixture
def report(run: Checkout) -> str:
    return (run.folder / FOLDER).with_suffix(".md").read_text()


def prompts(run: Checkout, branch: str) -> dict[str, Prompt]:
    path = run.folder / FOLDER / "test" / branch / "prompts.parquet"
    return {prompt.prompt_id: prompt for prompt in records.read(path, Prompt)}


def interval(of_tasks: list[float]) -> str:
    low, high = (100 * max(-1.0, min(1.0, end)) for end in wider_ends(of_tasks))
    return f"[{low:+.1f}, {high:+.1f}]".replace("-", "−")


def test_arms_solve_the_tasks_that_their_letters_say(report: str):
    # independent: double, mirror, add; refine: double, largest, mirror; trained: all but add; controls: mirror
    for line in (
        "- `independent` (3): `double`, `mirror`, `add`",
        "- `refine` (3): `double`, `largest`, `mirror`",
        "- `blind` (1): `mirror`",
        "- `twin` (1): `mirror`",
        "- `fresh` (1): `mirror`",
        "- `trained` (4): `double`, `largest`, `parity`, `mirror`",
    ):
        assert f"{line}\n" in report
    # 9 of 20 against 4 of 20 attempts
    assert "Second attempts are right in 45.0 % after training, in 20.0 % before: +25.0 points" in report
    (row,) = (line for line in report.splitlines() if line.startswith("| turn 2: `trained` − `refine` |"))
    assert row.split(" | ")[1:3] == ["5", f"+25.0 {interval([0.25, 0.0, 0.25, 0.75, 0.0])}"]
    assert "two guesses" not in report


def test_an_attempt_to_refine_is_compared_with_one_more_first_attempt(report: str):
    # second attempts: 1/4, 2/4, 0, 1/4, 0; attempts 5 to 8 of turn 1: 1/4, 0, 0, 0, 1/4
    arms = "turn 2 of `refine` − further first attempts of `independent`"
    assert f"| {arms} | 5 | 20.0 % | 10.0 % | +10.0 {interval([0.0, 0.5, 0.0, 0.25, -0.25])} | – |\n" in report


def test_rows_that_give_no_task_are_counted_and_named(run: Checkout, report: str):
    reasons = [
        "a hidden test makes only calls that prompts show (again): assert triple(1) == 3",
        "its own program fails a test (wrong): assert half(2) == 1: it is false",
        "no tests (empty)",
    ]
    notes = records.notes(run.folder / FOLDER / "tasks/test.parquet")
    assert notes["problems_left_out"] == dict.fromkeys(reasons, 1)
    assert all(f"| tasks of `test` | {reason} | 1 |" in report for reason in reasons)
    assert "| problems to train on | no tests (empty) | 1 |" in report
    assert "| tasks of `part1` to train on | also in `test` | 1 |" in report


def test_second_turns_show_what_shown_tests_gave(run: Checkout):
    feedback = {prompt.parent_id: prompt.messages[-1]["content"] for prompt in prompts(run, "refine-turn2").values()}
    assert feedback["double/turn1-000/000"] == (
        f"Your program passes 0 of 1 tests.\n\nassert double(2) == 4\ndouble(2) returned None, expected 4\n\n{END}"
    )
    assert feedback["parity/turn1-001/001"] == (
        "Your program passes 0 of 1 tests.\n\n"
        f"assert parity(3) is True\nparity(3) raised ValueError: bad (line 2)\n\n{END}"
    )
    # `largest`: T passes the shown tests, n has no program, so w and v are refined
    assert {parent for parent in feedback if parent.startswith("largest")} == {
        "largest/turn1-000/001",
        "largest/turn1-001/000",
    }


def test_controls_show_nothing_or_the_first_turn_again(run: Checkout):
    blind, fresh = prompts(run, "blind-turn2").values(), prompts(run, "fresh-turn2")
    assert {prompt.messages[-1]["content"] for prompt in blind} == {END}
    first = {prompt.task_id: prompt.text for prompt in prompts(run, "turn1").values()}
    assert {prompt.text == first[prompt.task_id] for prompt in fresh.values()} == {True}
    own = {prompt.parent_id for prompt in prompts(run, "refine-turn2").values()}
    assert {prompt.parent_id for prompt in fresh.values()} == own


def test_twins_show_the_results_of_another_wrong_program_for_the_same_task(run: Checkout, report: str):
    of_twins, own = prompts(run, "twin-turn2"), prompts(run, "refine-turn2")
    # all wrong programs for `mirror` and `add` return None
    assert {prompt.task_id for prompt in of_twins.values()} == {"double", "largest", "parity"}
    assert "on 2 of them, no two wrong attempts have different results" in report
    feedback = {name: prompt.messages[-1]["content"] for name, prompt in of_twins.items()}
    # None, 'no' and a ValueError, refined in this order: each shows the results of the next one
    assert "returned None" in own["double/refine-turn2-000"].messages[-1]["content"]
    assert "returned 'no'" in feedback["double/twin-turn2-000"]
    assert "raised ValueError" in feedback["double/twin-turn2-001"]
    assert of_twins["double/twin-turn2-000"].messages[-2] == own["double/refine-turn2-000"].messages[-2]


def test_no_prompt_has_a_hidden_test(run: Checkout):
    for branch in handmade.ANSWERS:
        for prompt in prompts(run, branch).values():
            assert not any(test in prompt.text for test in handmade.ROWS[prompt.task_id]["hidden_tests"])


def test_verdicts_say_which_tests_pass(run: Checkout):
    verdicts = {
        verdict.attempt_id: verdict
        for verdict in records.read(run.folder / FOLDER / "test/turn1/verdicts/000.parquet", Verdict)
    }
    shown_only, syntax, timeout = (
        verdicts[f"{name}/000"] for name in ("largest/turn1-000", "parity/turn1-000", "parity/turn1-002")
    )
    assert (shown_only.status, shown_only.score, shown_only.solved) == ("ok", 1.0, False)
    # it returns None for the hidden [7, 2] and for [-2]
    assert (shown_only.detail.passed, shown_only.detail.hidden_passed, shown_only.detail.n_hidden) == (0.5, 0.0, 2)
    assert (syntax.status, syntax.error.partition(":")[0]) == ("error", "SyntaxError")
    assert (timeout.status, timeout.score) == ("timeout", 0.0)


def test_the_gallery_lists_failing_tests_and_their_values(report: str):
    gallery = report[report.index("### Tasks\n") :]
    assert "#### `parity`: solved only by refining" in gallery
    assert (
        "first program: passes 0 of 1 shown tests and 0 of 1 hidden tests\n"
        "  assert parity(3) is True: ValueError: bad\n"
        "refined program: passes 1 of 1 shown tests and 1 of 1 hidden tests\n"
    ) in gallery
    assert "Tell whether a number is odd." in gallery
    assert "gallery/" not in report


def test_a_report_on_code_speaks_of_no_grids(report: str):
    assert not [word for word in ("grid", "pixel", "train pair", "test pair", "color") if word in report.lower()]


def test_tokens_are_counted_with_prompts_read_once_and_per_attempt(run: Checkout):
    table = pd.read_parquet(run.folder / FOLDER / "attempts.parquet")
    sizes = table.groupby("arm").size()
    assert sizes["twin"] == 20 + 3 * 4  # two of five tasks have no twin
    assert set(sizes.drop("twin")) == {40}
    row = table[table["attempt_id"] == "double/refine-turn2-000/001"].iloc[0]
    prompt = prompts(run, "refine-turn2")["double/refine-turn2-000"]
    assert row["n_prompt_tokens"] == prompt.n_tokens
    assert row["tokens"] == row["n_tokens"] + prompt.n_tokens / 2  # two attempts share a prompt
    assert row["tokens_unshared"] == row["n_tokens"] + prompt.n_tokens


def test_attempts_are_shown_and_compared(run: Checkout):
    shown = run.run("arc-refinery", "show", f"{FOLDER}:refine", "--task", "double")
    assert shown.returncode == 0, shown.stderr
    assert "turn 2: 4 attempts, 1 solve the task: --attempt 1" in shown.stdout
    assert "passes 0 of 1 shown tests and 0 of 1 hidden tests\n  assert double(2) == 4: double(2) gave None" in (
        shown.stdout
    )
    page = run.folder / "results/compared.md"
    compared = run.run("arc-refinery", "compare", f"{FOLDER}:trained", f"{FOLDER}:refine", "--output", str(page))
    assert compared.returncode == 0, compared.stderr
    assert "4 − 3 of 5" in page.read_text()


@pytest.mark.parametrize("branch", ["turn1", "refine-turn2"])
def test_a_run_killed_while_it_samples_ends_in_the_same_bytes(run: Checkout, tmp_path: Path, branch: str):
    killed = run.clone(tmp_path / "killed")
    shard = killed.folder / FOLDER / "test" / branch / "attempts/000.parquet"
    progress = shard.parent / ".progress/000.jsonl"
    shard.unlink()
    environment = Path(yaml.safe_load((run.folder / CONFIG).read_text())["resources"]["sample"]["venv"])
    handmade.stand_in(environment, seconds=0.2)
    target = [str(shard.relative_to(killed.folder)), *RUN]
    killed.kill_when(lambda: n_attempts(progress) > 2, "snakemake", *target)
    assert not shard.exists()
    handmade.stand_in(environment)
    for arguments in (target, RUN):
        done = killed.snakemake(*arguments)
        assert done.returncode == 0, done.stdout + done.stderr
    assert not progress.exists()
    for name in (f"test/{branch}/attempts/000.parquet", f"test/{branch}/verdicts/000.parquet", "attempts.parquet"):
        assert (killed.folder / FOLDER / name).read_bytes() == (run.folder / FOLDER / name).read_bytes()
    assert (killed.folder / f"{FOLDER}.md").read_bytes() == (run.folder / f"{FOLDER}.md").read_bytes()
