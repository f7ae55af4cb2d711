"""Errors that the user can fix. The CLI prints the message without a traceback."""


class InputError(ValueError):
    """Bad input. The message names the file and the field, what was expected, and what to do."""


class ModelError(InputError):
    """A model's folder cannot be used; the message says what is missing."""


class NotFiniteError(ModelError):
    """A network predicts what is not a finite number."""

    def __init__(self, model: str) -> None:
        super().__init__(
            f"{model}: its predictions are not finite numbers; its weights or those of its adapter are damaged or too "
            "large. Download or train it again, or set another dtype"
        )
