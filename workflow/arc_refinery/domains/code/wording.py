"""Texts of prompts of domain `code`: `plain`, or a folder with a file `<name>.txt` for each, for people to edit.

A first turn of `plain`, and a second one in the form `failing-tests`:

    Write a function to double a number.                        Your program passes 1 of 2 tests.

    Your program must pass tests such as:                       assert double(3) == 6
    ```python                                                   double(3) returned 5, expected 6
    assert double(2) == 4
    assert double(3) == 6                                       Correct the program. Write the whole program in one
    ```                                                         ```python block, without tests.

    Write the whole program in one ```python block, without tests.

Asked for a program alone, small models append asserts of their own, many of them wrong, and then the program fails
before it is called. Parts are separated by blank lines, and those without content are left out. The final line break of
a file is not part of its text.
"""

from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

from arc_refinery.domains.code.config import FORMS, PLAIN, FeedbackForm, wording_files
from arc_refinery.domains.code.tasks import CodeTask
from arc_refinery.domains.prompts import check_slots, fill, slots_of
from arc_refinery.errors import InputError
from arc_refinery.files import atomic_write, read_text
from arc_refinery.models.chat import Message


@dataclass(frozen=True)
class Wording:
    """The texts; comments list all slots."""

    # first turn
    system: str = ""  # empty: no system message
    task: str = "{text}"
    starter: str = "Complete this code:\n```python\n{code}\n```"  # if the task has a starter
    tests: str = "Your program must pass tests such as:\n```python\n{tests}\n```"
    names: str = "Your program must define {names}."  # if no test is shown
    request: str = "Write the whole program in one ```python block, without tests."
    # later turns
    passed: str = "Your program passes {n_passed} of {n_tests} tests."  # not in the form `traceback`
    returned: str = "{call} returned {value}"
    compared: str = "{call} returned {value}, expected {expected}"
    raised: str = "{call} raised {error}"  # {error}: ValueError: bad (line 3)
    not_run: str = "Your program raised {error}\n{code}"  # before it was called; {code}: the line that raised
    traceback: str = "Traceback (most recent call last):"  # not of a SyntaxError, as in Python
    frame: str = '  File "{file}", line {line}\n    {code}'  # of the test, then of the program
    correct: str = (
        "Correct the program. Write the whole program in one ```python block, without tests."  # ends all feedback
    )

    form: FeedbackForm = "failing-tests"

    def texts(self) -> dict[str, str]:
        return {name: text for name, text in asdict(self).items() if name != "form"}


_SLOTS = {field.name: slots_of(str(field.default)) for field in fields(Wording)}
# slots without which a model would not see what it is asked
_REQUIRED = {
    "task": ("text",),
    "starter": ("code",),
    "tests": ("tests",),
    "names": ("names",),
    "returned": ("value",),
    "compared": ("value", "expected"),
    "raised": ("error",),
    "not_run": ("error",),
    "frame": ("code",),
}


def first_turn(task: CodeTask, wording: Wording) -> list[Message]:
    """Return the conversation that asks for a task's program."""
    parts = [
        task.text and fill(wording.task, {"text": task.text}),
        task.starter and fill(wording.starter, {"code": task.starter}),
        fill(wording.tests, {"tests": task.shown_code})
        if task.shown
        else ""
        if task.is_script
        else fill(wording.names, {"names": ", ".join(f"`{name}`" for name in task.names)}),
        wording.request,
    ]
    messages = [
        Message(role="system", content=wording.system),
        Message(role="user", content="\n\n".join(filter(None, parts))),
    ]
    return [message for message in messages if message["content"]]


def load_wording(name: str, form: str = "failing-tests") -> Wording:
    """Load `plain` or the texts of a folder, with feedback in a form. Raises `InputError`."""
    if form not in FORMS:
        raise InputError(f"the form of feedback is {form!r}; the domain code has {', '.join(FORMS)}")
    if name == PLAIN:
        return Wording(form=form)
    if missing := [path for path in wording_files(name) if not path.is_file()]:
        raise InputError(
            f"{missing[0]} does not exist; model.template is `{PLAIN}` or a folder with "
            f"{', '.join(path.name for path in wording_files(name))}"
        )
    texts = {path.stem: read_text(path, "a text of prompts").removesuffix("\n") for path in wording_files(name)}
    wording = replace(Wording(form=form), **texts)  # type: ignore[arg-type]
    _check_slots(wording, Path(name))
    return wording


def save_wording(wording: Wording, folder: Path) -> None:
    """Write the files that `load_wording` reads."""
    _check_slots(wording, folder)
    for name, text in wording.texts().items():
        with atomic_write(folder / f"{name}.txt") as path:
            path.write_bytes(f"{text}\n".encode())


def _check_slots(wording: Wording, folder: Path) -> None:
    """Raise `InputError` if a text has a slot that nothing fills, which the model would read, or lacks a slot."""
    for name, text in wording.texts().items():
        check_slots(f"{folder / f'{name}.txt'}: it", text, _SLOTS[name], _REQUIRED.get(name, ()))
