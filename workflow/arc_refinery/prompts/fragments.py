"""Texts that the embedded model's tokenizer knows as single tokens: `compact` prompts and answers are built of them.

Every name here is one: another text or another order of names makes another tokenizer than the one that is shipped.
"""

COMPACT_INPUT = "\ninput "
COMPACT_OUTPUT = "\noutput "
ANSWER_HEAD = "```python\nfrom common import *\n\ndef transform(grid):\n"
ANSWER_TAIL = "    return grid\n```"
FEEDBACK_HEAD = "Executing your program gave:"
FEEDBACK_PAIR = "\npair "
FEEDBACK_CORRECT = " correct"
FEEDBACK_WRONG = " wrong, pixel similarity "
FEEDBACK_SHAPE = ", expected shape "
FEEDBACK_GIVEN = ", given "
FEEDBACK_ERROR = "Executing your program failed with "
FEEDBACK_TAIL = "\nWrite a corrected program."
