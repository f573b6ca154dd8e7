"""Plants a mutant: into a function that is loaded already, or into a module that is yet to be."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from pathlib import Path
from types import CodeType, FunctionType, ModuleType

from tests.mutation.mutants import Mutant, compiled

PACKAGE = "tstreams.core"
FOLDER = Path(__file__).parents[2] / "src/tstreams/core"


def path_of(module: str) -> Path:
    return FOLDER / f"{module}.py"


def function_of(mutant: Mutant) -> FunctionType | None:
    """The function that a mutant is in. None: it is in what runs when the module is loaded."""
    found: object = importlib.import_module(f"{PACKAGE}.{mutant.module}")
    for name in mutant.function.split(".") if mutant.function else ():
        found = vars(found)[name]
    return found if isinstance(found, FunctionType) else None


def plant(mutant: Mutant) -> None:
    """From now on the function does what the mutant says, whoever holds it."""
    function = function_of(mutant)
    assert function is not None, f"{mutant.function} is no function"
    code = compiled(path_of(mutant.module), mutant.number)
    function.__code__ = next(it for it in _codes(code) if it.co_qualname == mutant.function)


def _codes(code: CodeType) -> Iterator[CodeType]:
    for it in code.co_consts:
        if isinstance(it, CodeType):
            yield it
            yield from _codes(it)


class _Loader(Loader):
    def __init__(self, code: CodeType) -> None:
        self._code = code

    def exec_module(self, module: ModuleType) -> None:
        exec(self._code, vars(module))


class _Finder(MetaPathFinder):
    def __init__(self, name: str, code: CodeType) -> None:
        self._name = name
        self._code = code

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        return spec_from_loader(fullname, _Loader(self._code), origin=self._code.co_filename)


def plant_before_loading(module: str, number: int) -> None:
    """When the module is loaded, it is the mutant."""
    name = f"{PACKAGE}.{module}"
    assert name not in sys.modules, f"{name} is loaded already"
    sys.meta_path.insert(0, _Finder(name, compiled(path_of(module), number)))
