"""The library that BARC programs import as `common`, written from a specification of what it does.

`from ... import *` brings exactly the 40 public names, `np` and `random`. The names, the signatures (with their
misspellings) and the quirks are those of the published library, because programs were written against it; it is not
a library to build new code on. Grids are indexed `grid[x, y]` with x on axis 0, and nobody transposes them.
"""

import random

import numpy as np

from .color import Color, show_colored_grid, visualize
from .drawing import blit, blit_object, blit_sprite, draw_line, flood_fill, scale_pattern, scale_sprite, translate
from .measuring import (
    bounding_box,
    bounding_box_mask,
    check_between_objects,
    collision,
    contact,
    crop,
    is_contiguous,
    object_boundary,
    object_colors,
    object_interior,
    object_neighbors,
    object_position,
)
from .objects import detect_objects, find_connected_components
from .sprites import (
    generate_sprite,
    random_free_location_for_object,
    random_free_location_for_sprite,
    random_sprite,
    randomly_scatter_points,
    randomly_spaced_indices,
)
from .symmetry import (
    MirrorSymmetry,
    Symmetry,
    TranslationalSymmetry,
    apply_diagonal_symmetry,
    apply_symmetry,
    detect_mirror_symmetry,
    detect_rotational_symmetry,
    detect_translational_symmetry,
    orbit,
)

__all__ = [
    "Color",
    "MirrorSymmetry",
    "Symmetry",
    "TranslationalSymmetry",
    "apply_diagonal_symmetry",
    "apply_symmetry",
    "blit",
    "blit_object",
    "blit_sprite",
    "bounding_box",
    "bounding_box_mask",
    "check_between_objects",
    "collision",
    "contact",
    "crop",
    "detect_mirror_symmetry",
    "detect_objects",
    "detect_rotational_symmetry",
    "detect_translational_symmetry",
    "draw_line",
    "find_connected_components",
    "flood_fill",
    "generate_sprite",
    "is_contiguous",
    "np",
    "object_boundary",
    "object_colors",
    "object_interior",
    "object_neighbors",
    "object_position",
    "orbit",
    "random",
    "random_free_location_for_object",
    "random_free_location_for_sprite",
    "random_sprite",
    "randomly_scatter_points",
    "randomly_spaced_indices",
    "scale_pattern",
    "scale_sprite",
    "show_colored_grid",
    "translate",
    "visualize",
]
