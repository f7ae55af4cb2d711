"""What stages are given: a changed setting changes the `params` of exactly the stages whose results it changes."""

import pytest
from pydantic import BaseModel

from arc_refinery import config
from arc_refinery.cli.tool_use import ToolTrainingFlags
from arc_refinery.config import EVALUATION, PROMPTS, REPORT, ROWS, TUNING, Mark, marked

OF_A_TRAINING = {"n_jobs", "gpu_memory_utilization", "server_url", "report_to"}


@pytest.mark.parametrize(
    ("section", "marks", "names"),
    [
        (config.Grpo, [TUNING], OF_A_TRAINING),
        (config.ToolTraining, [TUNING], OF_A_TRAINING),
        (ToolTrainingFlags, [TUNING], OF_A_TRAINING),  # hides some of them, which keeps them out of identities
        (config.Grpo, [PROMPTS], {"rollout", "max_completion_length", "max_seq_length"}),
        (config.Model, [PROMPTS, TUNING], {"template", "colors", "gpu_memory_utilization"}),
        (config.Network, [TUNING], {"gpu_memory_utilization"}),
        (config.Imitation, [TUNING], {"save_steps"}),  # GRPO chooses among its checkpoints: there they are a setting
        (config.Sft, [ROWS], {"demonstrations"}),
        (config.ToolSft, [ROWS], {"without_tools", "n_questions"}),
        (config.Generation, [EVALUATION], {"temperature", "top_p"}),
        (config.TaskSet, [TUNING, REPORT], {"shards", "caveat"}),
        (config.Questions, [TUNING], {"shards"}),
        (config.Sampling, list(Mark), set()),
    ],
)
def test_fields_say_what_alone_they_change(section: type[BaseModel], marks: list[Mark], names: set[str]) -> None:
    assert marked(section, *marks) == names
