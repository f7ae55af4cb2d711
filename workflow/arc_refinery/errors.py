"""The one family of errors that are the user's to solve."""


class InputError(ValueError):
    """Bad input. The message names the file and the field, what was expected, and what to do; the command line prints
    it alone, without a traceback."""


class ModelError(InputError):
    """A model's folder cannot be used; the message says what is missing."""
