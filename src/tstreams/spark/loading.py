"""Finds the pipelines that are declared in files and modules."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import sysconfig
import traceback
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from zlib import crc32

from ..errors import BadRequest, NotFound
from .pipelines import Pipeline

NOT_THEIRS = (
    "<",
    sysconfig.get_path("stdlib"),
    sysconfig.get_path("purelib"),
    str(Path(__file__).parent),
)
"""How the names of files begin that no user has written."""


def load_pipelines(targets: Iterable[str]) -> list[Pipeline]:
    """The pipelines of files and modules, in the order in which they are declared.

    A target is the path of a Python file or the name of a module; `:NAME` behind it takes one of its
    pipelines. `NotFound` if there is none; `BadRequest` if the code fails, or if two have one name.
    """
    found: dict[str, tuple[str, Pipeline]] = {}
    for target in targets:
        for pipeline in _of(target):
            before, known = found.get(pipeline.name, (target, pipeline))
            if known is not pipeline:
                raise BadRequest(
                    f"two pipelines are called {pipeline.name!r}, in {before} and in {target}: "
                    "their checkpoints would be the same; give one another name"
                )
            found[pipeline.name] = target, pipeline
    return [pipeline for _, pipeline in found.values()]


def check_targets(targets: Iterable[str]) -> None:
    """`NotFound` if a file is not there: before a session is made, which takes its time."""
    for target in targets:
        where, _ = _split(target)
        if _is_file(where) and not Path(where).is_file():
            raise NotFound(f"there is no file {where}")


def _split(target: str) -> tuple[str, str]:
    """Where it is, and which pipeline of those there, if one is named."""
    if ":" not in target or Path(target).is_file():
        return target, ""
    where, _, wanted = target.rpartition(":")
    return where, wanted


def _is_file(where: str) -> bool:
    return where.endswith(".py") or Path(where).is_file()


def _of(target: str) -> list[Pipeline]:
    where, wanted = _split(target)
    module = _load(where)
    declared: dict[int, Pipeline] = {
        id(it): it for it in vars(module).values() if isinstance(it, Pipeline)
    }
    if not declared:
        raise NotFound(
            f"{where} declares no pipeline: put @tstreams.spark.pipeline(...) above a function in it"
        )
    chosen = [it for it in declared.values() if wanted in ("", it.name)]
    if not chosen:
        names = ", ".join(it.name for it in declared.values())
        raise NotFound(f"{where} has no pipeline {wanted!r}: it has {names}")
    return chosen


def _load(where: str) -> ModuleType:
    """Import a file or a module. What fails in it is told with its line."""
    check_targets([where])
    try:
        return _load_file(Path(where).resolve()) if _is_file(where) else _load_module(where)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{where}.".startswith(f"{error.name}."):
            raise NotFound(f"there is no file and no module {where!r}") from None
        raise BadRequest(explain(error, where)) from error
    except Exception as error:
        raise BadRequest(explain(error, where)) from error


def _load_module(name: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)  # as `python -m` does
    return importlib.import_module(name)


def _load_file(path: Path) -> ModuleType:
    """Run a file as a module. Its name is its own, so that no other module is hidden by it."""
    name = f"{path.stem.replace('.', '_')}_{crc32(bytes(path)):08x}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    if str(path.parent) not in sys.path:
        sys.path.insert(
            0, str(path.parent)
        )  # for what lies beside it, as when Python runs the file
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    _send_by_value(module)
    return module


def _send_by_value(module: ModuleType) -> None:
    """Executors cannot import the file: its functions travel with the query."""
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]


def explain(error: BaseException, where: str) -> str:
    """An exception of the user's code in one line: the place, the kind, the message."""
    if isinstance(error, SyntaxError):
        return f"{error.filename}:{error.lineno}: {type(error).__name__}: {error.msg}"
    frames = [
        it
        for it in traceback.extract_tb(error.__traceback__)
        if not it.filename.startswith(NOT_THEIRS)
    ]
    place = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else where
    return f"{place}: {type(error).__name__}: {error}"
