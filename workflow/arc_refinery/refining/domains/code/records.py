"""Records of domain `code`: prompts hold their task, for rewards; verdicts what a program gave on the tests."""

from dataclasses import dataclass

from arc_refinery import records
from arc_refinery.refining.domains.code.grading import CodeDetail
from arc_refinery.refining.domains.code.tasks import CodeTask


@dataclass(frozen=True, slots=True)
class Prompt(records.Prompt):
    detail: CodeTask


@dataclass(frozen=True, slots=True)
class Verdict(records.Verdict):
    detail: CodeDetail
