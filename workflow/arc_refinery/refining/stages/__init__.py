"""The stages of refining, in running order: plain functions (arc_refinery.stages)."""

from arc_refinery.refining.stages.attempts import grade as grade
from arc_refinery.refining.stages.attempts import sample as sample
from arc_refinery.refining.stages.broken import break_programs as break_programs
from arc_refinery.refining.stages.prompts import demonstrations as demonstrations
from arc_refinery.refining.stages.prompts import first_prompts as first_prompts
from arc_refinery.refining.stages.prompts import refining_prompts as refining_prompts
from arc_refinery.refining.stages.reading import reference_logprobs as reference_logprobs
from arc_refinery.refining.stages.tasks import evaluation_tasks as evaluation_tasks
from arc_refinery.refining.stages.tasks import overlap as overlap
from arc_refinery.refining.stages.tasks import tasks as tasks
from arc_refinery.refining.stages.training import train as train

STAGES = (
    *("tasks", "evaluation_tasks", "overlap"),
    *("first_prompts", "sample", "break_programs", "grade", "refining_prompts", "reference_logprobs", "demonstrations"),
)
