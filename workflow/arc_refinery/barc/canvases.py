"""Inputs of generated problems: source code for BARC's `generate_input`, one for each kind of canvas.

Placeholders: ``{low}`` and ``{high}`` bound the sides; ``{colors}`` is an expression for the list of colours of one
grid. The code uses only `random` and `np.random`, so a seed determines the grid.
"""

_SIZE = "n, m = random.randint({low}, {high}), random.randint({low}, {high})\n"
_SQUARE = "n = m = random.randint({low}, {high})\n"
_COLORS = "colors = {colors}\n"
_DENSE = "grid = np.random.choice(colors, size=(n, m))\n"
_SPARSE = "grid = np.where(np.random.rand(n, m) < random.uniform(0.2, 0.6), np.random.choice(colors, size=(n, m)), 0)\n"
_DOTS = (
    "grid = np.zeros((n, m), dtype=int)\n"
    "for _ in range(random.randint(1, 1 + (n * m) // 12)):\n"
    "    grid[random.randrange(n), random.randrange(m)] = random.choice(colors)\n"
)
_SCATTER = (
    "grid = np.zeros((n, m), dtype=int)\n"
    "for color in random.choices(colors, k=random.randint(2, 4)):\n"
    "    x, y = random_free_location_for_sprite(grid, sprite := {sprite}, padding=1)\n"
    "    blit_sprite(grid, sprite, x, y)\n"
)
_BLOB = "np.where(np.random.rand(random.randint(1, 3), random.randint(1, 3)) < 0.8, color, 0)"
_SLAB = "np.full((random.randint(2, 5), random.randint(2, 5)), color)"
_RING = "np.pad(np.zeros((random.randint(1, 3), random.randint(1, 3)), dtype=int), 1, constant_values=color)"
_HALF = "np.where(np.random.rand(n, m) < random.uniform(0.3, 0.6), {color}, 0)"

CANVASES: dict[str, str] = {
    "dense": _SIZE + _COLORS + _DENSE,
    "sparse": _SIZE + _COLORS + _SPARSE,
    "dots": _SIZE + _COLORS + _DOTS,
    "square": _SQUARE + _COLORS + _DENSE,
    "sparse square": _SQUARE + _COLORS + _SPARSE,
    "one color": _SIZE + _COLORS + "colors = colors[:1]\n" + _SPARSE,
    "upscaled": _SIZE + _COLORS + _SPARSE + "grid = scale_sprite(grid, {k})\n",
    "stretched": _SIZE
    + _COLORS
    + _DENSE
    + "grid = np.repeat(grid, [random.randint(1, 2) for _ in range(n)], axis=0)\n"
    + "grid = np.repeat(grid, [random.randint(1, 2) for _ in range(m)], axis=1)\n",
    "block": _SIZE
    + _COLORS
    + _SPARSE
    + "grid = np.pad(grid, [[random.randint(0, 3) for _ in range(2)] for _ in range(2)])\n",
    "noisy block": _SIZE
    + _COLORS
    + _DOTS
    + "n, m = random.randint(1, n - 1), random.randint(1, m - 1)\n"
    + "x, y = random.randint(0, len(grid) - n), random.randint(0, grid.shape[1] - m)\n"
    + "grid[x:x + n, y:y + m] = np.where(np.random.rand(n, m) < 0.85, colors[0], grid[x:x + n, y:y + m])\n",
    "objects": _SIZE + _COLORS + _SCATTER.replace("{sprite}", _BLOB),
    "slabs": _SIZE + _COLORS + _SCATTER.replace("{sprite}", _SLAB).replace("randint(2, 4))", "randint(1, 2))"),
    "rings": _SIZE + _COLORS + _SCATTER.replace("{sprite}", _RING).replace("randint(2, 4))", "randint(1, 2))"),
    "pairs": _SIZE
    + _COLORS
    + "grid = np.zeros((n, m), dtype=int)\n"
    + "for x in random.sample(range(n), random.randint(1, (n + 1) // 2)):\n"
    + "    grid[x, random.sample(range(m), 2)] = random.choice(colors)\n",
    "left and right": _SIZE
    + _COLORS
    + "a, b = "
    + ", ".join(_HALF.format(color=color) for color in ("colors[0]", "colors[-1]"))
    + "\ngrid = np.hstack([a, np.full((n, {line}), colors[len(colors) // 2]), b])\n",
    "top and bottom": _SIZE
    + _COLORS
    + "a, b = "
    + ", ".join(_HALF.format(color=color) for color in ("colors[0]", "colors[-1]"))
    + "\ngrid = np.vstack([a, np.full(({line}, m), colors[len(colors) // 2]), b])\n",
    "noisy rows": _SIZE
    + _COLORS
    + "grid = np.repeat(np.random.choice(colors, size=(n, 1)), m, axis=1)\n"
    + "grid = np.where(np.random.rand(n, m) < 0.15, random.randint(0, 9), grid)\n",
    "noisy columns": _SIZE
    + _COLORS
    + "grid = np.repeat(np.random.choice(colors, size=(1, m)), n, axis=0)\n"
    + "grid = np.where(np.random.rand(n, m) < 0.15, random.randint(0, 9), grid)\n",
}

# Kinds that are a random choice among others.
CHOICES: dict[str, tuple[str, ...]] = {
    "any": ("dense", "sparse", "sparse", "objects"),
    "small": ("dense", "sparse"),
    "tiny": ("dense", "sparse"),
    "pairs": ("pairs", "transposed pairs"),
    "square": ("square", "sparse square"),
}
CANVASES["transposed pairs"] = CANVASES["pairs"] + "grid = grid.T\n"

# Limits of the sides for a kind, applied after the requested ones.
SIDE_LIMITS: dict[str, tuple[int, int]] = {
    "small": (2, 4),
    "tiny": (2, 3),
    "upscaled": (2, 4),
    "stretched": (2, 5),
    "block": (2, 5),
    "noisy block": (3, 30),
    "objects": (4, 30),
    "slabs": (5, 30),
    "rings": (5, 30),
    "pairs": (3, 30),
    "dots": (3, 30),
    "left and right": (2, 5),
    "top and bottom": (2, 5),
}
