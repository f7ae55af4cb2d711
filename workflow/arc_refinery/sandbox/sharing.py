"""Decide which programs may run one after the other in one child, and check that none affects the next one.

A program may share its child if its bytecode can only compute on its own objects: it imports only `MODULES`, uses only
`ATTRIBUTES` and those of `common`, and of builtins only `SAFE_BUILTINS`; it sets no attribute, defines no class and no
generator function (whose leftovers could run later), and uses no name with a leading underscore. Other programs are not
forbidden: they run in their own child.

This is a second line of defence, not a proof: if it matters that no program deceives another, give every program its
own child (`programs_per_child: 1`).
"""

import builtins
import inspect
import opcode
import resource
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

MODULES = frozenset(
    "bisect collections common copy functools heapq itertools math ndimage numpy random re scipy typing".split()  # noqa: SIM905
)
SAFE_BUILTINS = frozenset(
    """
    abs all any bin bool bytearray bytes callable chr complex dict divmod enumerate filter float frozenset hash hex int
    isinstance iter len list map max min next ord pow print range repr reversed round set slice sorted str sum tuple zip
    ArithmeticError AttributeError Exception IndexError KeyError LookupError NotImplementedError OverflowError
    RecursionError RuntimeError StopIteration TypeError ValueError ZeroDivisionError Ellipsis NotImplemented
    """.split()  # noqa: SIM905
)
ATTRIBUTES = frozenset(
    """
    abs absolute accumulate add all allclose amax amin Any any append appendleft apply_along_axis arange arctan2 argmax
    argmin argsort argwhere around array array_equal array_split asarray ascontiguousarray astype at atan2 atleast_1d
    atleast_2d average binary_closing binary_dilation binary_erosion binary_fill_holes binary_opening bincount bisect
    bisect_left bisect_right bitwise_and bitwise_not bitwise_or bitwise_xor block bool bool_ broadcast_to cache Callable
    ceil center_of_mass chain choice choices clear clip cmp_to_key column_stack comb combinations
    combinations_with_replacement concatenate convolve copy copyto cos count count_nonzero Counter cumprod cumsum cycle
    deepcopy default_rng DefaultDict defaultdict degrees delete Deque deque diag diagonal Dict diff difference
    difference_update digitize discard dist distance_transform_edt divide divmod dot dropwhile dsplit dstack dtype e
    ediff1d einsum elements endswith equal exp expand_dims extend extendleft extract eye fabs factorial fill
    fill_diagonal find find_objects findall flat flatnonzero flatten flip fliplr flipud float32 float64 floor
    floor_divide fmod from_iterable fromkeys FrozenSet full full_like fullmatch gcd generate_binary_structure get
    gradient greater greater_equal group groupby groups heapify heappop heappush heappushpop heapreplace hsplit hstack
    hypot identity in1d index indices inf inner insert insort int16 int32 int64 int8 int_ integer integers intersect1d
    intersection intersection_update invert isclose isdigit isdisjoint isfinite isin isnan isqrt issubset issuperset
    item items Iterable Iterator ix_ join keys kron label lcm less less_equal linalg linspace List log log10 log2
    logical_and logical_not logical_or logical_xor lower lru_cache match max maximum maximum_filter maximum_position
    mean median median_filter meshgrid min minimum minimum_filter mod most_common move_to_end moveaxis multiply nan
    nanmax nanmin ndarray ndenumerate ndim ndimage ndindex negative newaxis nlargest nonzero norm not_equal nsmallest
    ones ones_like Optional OrderedDict outer pad partial permutation permutations pi pop popitem popleft power prod
    product ptp put putmask quantile radians rand randint random randrange ravel ravel_multi_index real reduce remove
    repeat replace reshape reverse right_shift roll rollaxis rot90 rotate round row_stack rstrip sample search
    searchsorted seed select Sequence Set setdefault setdiff1d setxor1d shape shuffle sign signbit sin size sort split
    sqrt square squeeze stack starmap startswith std strip sub subtract sum sum_labels swapaxes symmetric_difference T
    take take_along_axis takewhile tan tensordot tile tobytes tolist trace transpose tri tril triu trunc Tuple uint8
    uniform Union union union1d unique unravel_index update upper values var vectorize vsplit vstack where zeros
    zeros_like zfill zip_longest
    """.split()  # noqa: SIM905
)
HARMLESS_NAMES = frozenset({"_", "__name__"})  # with a leading underscore

# CPython 3.11: the arguments of these operations are indices in `co_names`. In other versions no program shares.
VERSION = (3, 11)
TAKING_ATTRIBUTES = frozenset(opcode.opmap[name] for name in ("LOAD_ATTR", "LOAD_METHOD", "IMPORT_FROM"))
IMPORT = opcode.opmap["IMPORT_NAME"]
BEYOND_COMPUTING = frozenset(
    opcode.opmap[name] for name in ("STORE_ATTR", "DELETE_ATTR", "LOAD_BUILD_CLASS", "MATCH_CLASS")
)
LEAVING_CODE = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
MAX_NAMES = 256  # above it, arguments no longer fit into one byte

MAX_GROWTH_KB = 64 * 1024  # peak memory of a child above its server's: later programs have that much less


class Sharing:
    """State shared by programs in one child, and the rule for which programs may share it."""

    def __init__(self, common: ModuleType, parts: Iterable[ModuleType]) -> None:
        """`parts`: the modules of `common`, the only ones whose mutable objects such programs can reach."""
        self._attributes = ATTRIBUTES | _names(common)
        containers = {id(each): each for part in parts for each in _containers(part)}
        self._containers = [(container, repr(container)) for container in containers.values()]
        self._max_rss_kb = peak_rss_kb() + MAX_GROWTH_KB

    def allows(self, program: CodeType) -> bool:
        """Return whether other programs may run in this program's child."""
        codes = [program] if sys.version_info[:2] == VERSION else []
        while codes:
            code = codes.pop()
            if not self._only_computes(code):
                return False
            codes += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
        return sys.version_info[:2] == VERSION

    def is_intact(self) -> bool:
        """Return whether the shared state is still as the first program received it."""
        return (
            all(repr(container) == original for container, original in self._containers)
            and resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < self._max_rss_kb
        )

    def _only_computes(self, code: CodeType) -> bool:
        operations, names = code.co_code[::2], code.co_names
        if code.co_flags & LEAVING_CODE and code.co_name != "<genexpr>":
            return False
        if len(names) > MAX_NAMES or not BEYOND_COMPUTING.isdisjoint(operations):
            return False
        for name in names:
            if (name[0] == "_" and name not in HARMLESS_NAMES) or (name in _ALL_BUILTINS and name not in SAFE_BUILTINS):
                return False
        for operation, argument in zip(operations, code.co_code[1::2], strict=True):
            if operation in TAKING_ATTRIBUTES and names[argument] not in self._attributes:
                return False
            if operation == IMPORT and not MODULES.issuperset(names[argument].split(".")):
                return False
        return True


def peak_rss_kb() -> int:
    """Return the peak resident memory since exec. getrusage would include the parent's, because vfork shares it."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0])


_ALL_BUILTINS = frozenset(name for name in vars(builtins) if not name.startswith("_"))


def _names(module: ModuleType) -> set[str]:
    """Return the public names of a module and of its classes' attributes."""
    values = {name: value for name, value in vars(module).items() if not isinstance(value, ModuleType)}
    classes = [value for value in values.values() if isinstance(value, type)]
    names = {*values, *(name for each in classes for name in (*dir(each), *inspect.get_annotations(each)))}
    return {name for name in names if not name.startswith("_")}


def _containers(module: ModuleType) -> Iterator[Any]:
    """Yield the mutable containers of a module, of its classes and of its functions' defaults."""
    for value in _without_dunders(module):
        if isinstance(value, type):
            candidates = _without_dunders(value)
        elif isinstance(value, FunctionType):
            candidates = [*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()]
        else:
            candidates = [value]
        yield from (each for each in candidates if isinstance(each, list | dict | set))


def _without_dunders(namespace: ModuleType | type) -> list[Any]:
    return [value for name, value in vars(namespace).items() if not name.startswith("__")]
