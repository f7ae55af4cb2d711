"""The sections `model`, `sampling` and `refinement` of refining, as far as every domain has them."""

from typing import Annotated, Literal

from pydantic import Field

from arc_refinery.config.base import ATTEMPTS, PROMPTS, LineOrNone, Mass, PositiveInt, Strict, Temperature
from arc_refinery.config.sampling import ModelConfig


class PromptedModel(ModelConfig):
    template: Annotated[LineOrNone, PROMPTS] = Field(
        "",
        description="Wording of prompts: a name that the domain knows, or a folder written by "
        "`arc-refinery prompts export`; default: the domain's own.",
    )


class Thinking(Strict):
    enable_thinking: bool | None = Field(
        None, description="Whether the chat template lets the model think first; default: as it does by itself."
    )


class Sampling(Strict):
    n_predictions: PositiveInt = Field(8, description="Completions per training task.")
    batch_size: PositiveInt = Field(
        8, description="Completions per prompt; each prompt shows the task in its own way, if the domain has several."
    )
    tasks_per_batch: Annotated[PositiveInt, ATTEMPTS] = Field(
        1,
        description="Tasks that transformers samples together: faster with few completions per task. "
        "Completions depend on it.",
    )
    temperature: Annotated[Temperature, ATTEMPTS] = Field(
        1.0, description="Softmax temperature; 0: greedy, so all completions of a prompt are equal."
    )
    top_p: Annotated[Mass, ATTEMPTS] = Field(0.95, description="Nucleus sampling: probability mass to sample from.")
    max_output_tokens: PositiveInt = Field(description="Longest completion, in tokens.")


# Earlier turns in the conversation of a later turn
History = Literal["whole", "last"]


class Refinement(Strict):
    n_parents: PositiveInt = Field(
        8,
        description="Incorrect attempts per task and turn that evaluation cycles through: the best ones, of several "
        "with the same outputs one.",
    )
    include_errors: bool = Field(
        False, description="Also refine programs that raised an exception, with the exception as feedback."
    )
    form: LineOrNone = Field("", description="Form of the feedback; default: the domain's first one.")
    history: History = Field(
        "whole",
        description="Attempts that prompts of turn 3 and later show: all with their feedback, or only the last one.",
    )
