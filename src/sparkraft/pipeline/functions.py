"""Functions of the user that a pipeline file names."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparkraft.pipeline.spec import SpecError

if TYPE_CHECKING:
    from collections.abc import Callable


def load_function(where: str, folder: Path) -> Callable[..., Any]:
    """`file.py:name`, relative to the pipeline file, or `package.module:name`."""
    place, _, name = where.partition(":")
    if not place or not name:
        raise SpecError(f"function is file.py:name or module:name, not {where!r}")
    try:
        module = _module_of(folder / place) if place.endswith(".py") else _named_module(place)
    except OSError as error:
        raise SpecError(f"function {where}: {error.strerror}: {error.filename}") from error
    found = getattr(module, name, None)
    if not callable(found):
        raise SpecError(f"function {where}: {place} does not define {name}")
    return found  # type: ignore[no-any-return]


def _named_module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except Exception as error:
        raise SpecError(f"module {name} can't be imported: {_shown(error)}") from error


def _module_of(path: Path) -> Any:
    if not path.exists():
        raise SpecError(f"function: file {path} does not exist")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Spark pickles functions of a module by its name.
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise SpecError(f"function: file {path} cannot be run: {_shown(error)}") from error
    return module


def _shown(error: Exception) -> str:
    """An error of a user's module, with the line."""
    if isinstance(error, ImportError | SyntaxError):
        return str(error)
    *_, last = traceback.extract_tb(error.__traceback__)
    return f"{type(error).__name__}: {error} ({Path(last.filename).name}, line {last.lineno})"
