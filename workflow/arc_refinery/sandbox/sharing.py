"""Which programs may run one after the other in one child, and whether one of them has changed what the next one sees.

A program may share its child if the names in its bytecode show no way to anything beyond its own objects: no module but
those of `PLAIN_MODULES`, no attribute set, no name with a leading underscore, nothing of `REACHING`. A program that may
not share is executed all the same, in a child of its own. This holds against accidents and the tricks that we know; a
program that is written to fool its neighbours needs a child of its own for everybody (`programs_per_child: 1`).
"""

import copy
import opcode
import resource
import sys
from collections.abc import Iterable, Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

PLAIN_MODULES = frozenset(
    """
    array bisect collections common copy functools heapq itertools math ndimage numpy random re scipy select statistics
    string time typing
    """.split()  # noqa: SIM905
)
REACHING = frozenset(
    """
    breakpoint compile delattr eval exec getattr globals input locals open setattr vars
    ForwardRef as_strided core ctypeslib f2py get_type_hints lib resize set_printoptions setbufsize seterr seterrcall
    test testing
    """.split()  # noqa: SIM905
)
HARMLESS = frozenset({"_", "__name__"})
STORES = frozenset(opcode.opmap[name] for name in ("STORE_ATTR", "DELETE_ATTR"))
MAX_GROWTH_KB = 64 * 1024  # of the peak memory of a child beyond its server's: its successors have less


def may_share(code: CodeType) -> bool:
    """Whether other programs may run in this program's child after it."""
    codes = [code]
    while codes:
        code = codes.pop()
        if not STORES.isdisjoint(code.co_code[::2]):
            return False
        for dotted_name in code.co_names:
            if not all(map(_is_plain, dotted_name.split("."))):
                return False
        codes += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return True


def _is_plain(name: str) -> bool:
    if name in HARMLESS or name in PLAIN_MODULES:
        return True
    return not (name in REACHING or name.startswith("_") or name in sys.modules)


class SharedState:
    """What a program that may share could still change: the lists and dicts of libraries, numpy's modes, memory."""

    def __init__(self, modules: Iterable[ModuleType]) -> None:
        containers = {id(container): container for module in modules for container in _containers(module)}
        self._containers = [(container, copy.deepcopy(container)) for container in containers.values()]
        self._modes = np.geterr()
        self._max_rss_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss + MAX_GROWTH_KB

    def is_intact(self) -> bool:
        return (
            all(container == original for container, original in self._containers)
            and np.geterr() == self._modes
            and resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < self._max_rss_kb
        )


def _containers(module: ModuleType) -> Iterator[Any]:
    """Mutable containers that plain programs reach through a module: its own, its classes', its functions' defaults."""
    for value in _public(module):
        if isinstance(value, type):
            candidates = _public(value)
        elif isinstance(value, FunctionType):
            candidates = [*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()]
        else:
            candidates = [value]
        yield from (each for each in candidates if isinstance(each, list | dict | set))


def _public(namespace: ModuleType | type) -> list[Any]:
    return [value for name, value in vars(namespace).items() if not name.startswith("_")]
