"""Errors that the user can fix. The CLI prints the message without a traceback."""


class InputError(ValueError):
    """Bad input. The message names the file and the field, what was expected, and what to do."""


class ModelError(InputError):
    """A model's folder cannot be used; the message says what is missing."""


class NotFiniteError(ModelError):
    """A network predicts what is not a finite number."""
