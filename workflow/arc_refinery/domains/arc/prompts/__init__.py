"""The texts of ARC's prompts: grids as text, first turns, feedback in several forms.

`docs/methods.md` describes the templates and how to learn one from a model's own training rows.
"""

from arc_refinery.domains.arc.prompts.notation import COLOR_WORDS, Notation
from arc_refinery.domains.arc.prompts.template import (
    COMPACT,
    WORDS,
    FeedbackForm,
    Template,
    load_template,
    save_template,
    template_files,
)
from arc_refinery.domains.arc.prompts.texts import (
    body_of,
    compact_answer,
    error_feedback,
    execution_feedback,
    first_turn,
    shape_text,
)
