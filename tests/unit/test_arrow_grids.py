"""Grids in Arrow's nested lists: the same grids as one by one, and what is none is told with as_grid's reason."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from arc_refinery import records
from arc_refinery.arc.arrow_grids import from_arrow, to_arrow
from arc_refinery.arc.grids import UNKNOWN, Grid, GridError, as_grid
from arc_refinery.arc.tasks import Task
from arc_refinery.domains.arc.records import Prompt, Verdict


def random_grids(n: int, seed: int) -> list[Grid]:
    rng = np.random.default_rng(seed)
    return [as_grid(rng.integers(10, size=rng.integers(1, 31, size=2))) for _ in range(n)]


def lists(grids: list[Grid]) -> list[Any]:
    return [grid.tolist() for grid in grids]


def test_grids_pass_through_arrow_and_back():
    grids = random_grids(50, 0)
    stored = to_arrow(grids)
    assert stored.type == pa.list_(pa.list_(pa.int8()))
    assert stored.to_pylist() == lists(grids)
    restored = from_arrow(stored)
    assert lists(restored) == lists(grids)
    assert {grid.dtype for grid in restored} == {np.dtype(np.uint8)}
    assert all(grid.flags.writeable and grid.flags.owndata for grid in restored)


def test_a_slice_of_an_array_gives_the_grids_of_the_slice():
    grids = random_grids(20, 1)
    stored = to_arrow(grids)
    assert lists(from_arrow(stored[5:9])) == lists(grids[5:9])


def test_cells_of_a_wider_type_are_stored_as_they_are():
    assert to_arrow([np.array([[1, 2], [3, 4]])]).to_pylist() == [[[1, 2], [3, 4]]]


def test_no_grids_are_an_empty_array():
    assert to_arrow([]).to_pylist() == []
    assert from_arrow(pa.array([], pa.list_(pa.list_(pa.int8())))) == []


def test_unknown_grids_are_read_only_where_they_may_be():
    grids = [UNKNOWN, as_grid([[1]]), UNKNOWN, UNKNOWN]
    stored = to_arrow(grids)
    assert [grid.shape for grid in from_arrow(stored, may_be_unknown=True)] == [
        (0, 0),
        (1, 1),
        (0, 0),
        (0, 0),
    ]
    with pytest.raises(GridError, match="1-D, expected 2-D"):
        from_arrow(stored)


@pytest.mark.parametrize("may_be_unknown", [False, True])
@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ([[1, 2], [3]], "rows of different lengths"),
        ([[1], [3, 4]], "rows of different lengths"),
        ([[]], "shape 1x0"),
        ([[1], []], "rows of different lengths"),
        ([[0] * 31], "shape 1x31"),
        ([[0]] * 31, "shape 31x1"),
        ([[10]], "cells 10..10"),
        ([[-1]], "cells -1..-1"),
        ([[None]], "cells of type object"),
        ([None], "expected 2-D"),
        (None, "0-D, expected 2-D"),
    ],
)
def test_the_first_that_is_no_grid_is_told_as_one_by_one(bad: Any, reason: str, may_be_unknown: bool):
    stored = pa.array([[[1, 2], [3, 4]], bad, [[77]]], pa.list_(pa.list_(pa.int8())))
    with pytest.raises(GridError, match=reason):
        from_arrow(stored, may_be_unknown)


@pytest.mark.parametrize("bad", [[[[1.0]]], [[[True]]], [[1]], [["1"]]])
def test_other_types_are_no_grids(bad: Any):
    with pytest.raises(GridError):
        from_arrow(pa.array(bad))


@pytest.mark.parametrize(("cls", "n_columns"), [(Task, 6), (Prompt, 6), (Verdict, 2)])
def test_the_cells_of_every_kind_of_file_are_stored_as_streams_of_bytes(tmp_path: Path, cls: Any, n_columns: int):
    path = tmp_path / "some.parquet"
    with records.writer(path, cls, 0, {}) as add:
        add(pa.Table.from_pylist([{}], records.schema(cls)))
    group = pq.read_metadata(path).row_group(0)
    columns = [group.column(number) for number in range(group.num_columns)]
    cells = [column for column in columns if column.path_in_schema.endswith("list.element.list.element")]
    assert len(cells) == n_columns
    assert all("BYTE_STREAM_SPLIT" in column.encodings for column in cells)
