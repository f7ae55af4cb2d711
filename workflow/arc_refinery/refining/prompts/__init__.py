"""The model's input and output: grids as text, first- and next-turn prompts, code extracted from a completion.

`docs/methods.md` describes the templates and how to learn one from a model's own training rows.
"""

from arc_refinery.models.chat import Message
from arc_refinery.refining.prompts.conversation import (
    Renderer,
    body_of,
    compact_answer,
    error_feedback,
    execution_feedback,
    extract_code,
    first_turn,
    has_closed_code,
    next_turn,
    no_feedback,
    opening,
    shape_text,
    split_prefix,
)
from arc_refinery.refining.prompts.demonstration import completed_answer, transform_program
from arc_refinery.refining.prompts.notation import COLOR_WORDS, Notation
from arc_refinery.refining.prompts.template import (
    COMPACT,
    RESIDUAL_ONLY,
    WORDS,
    FeedbackForm,
    Template,
    load_template,
    save_template,
    template_files,
)
