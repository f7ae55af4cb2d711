"""The ten colours by name."""

from typing import ClassVar


class Color:
    """Colour numbers as plain ints.

    The two lists are shared by everyone: a program that changes one changes it for the whole process.
    """

    BLACK = 0
    BLUE = 1
    RED = 2
    GREEN = 3
    YELLOW = 4
    GREY = 5
    PINK = 6
    ORANGE = 7
    TEAL = 8
    MAROON = 9

    GRAY = GREY
    TRANSPARENT = BLACK
    BACKGROUND = BLACK

    ALL_COLORS: ClassVar[list[int]] = [BLACK, BLUE, RED, GREEN, YELLOW, GREY, PINK, ORANGE, TEAL, MAROON]
    NOT_BLACK: ClassVar[list[int]] = [BLUE, RED, GREEN, YELLOW, GREY, PINK, ORANGE, TEAL, MAROON]
