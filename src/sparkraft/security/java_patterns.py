"""Regular expressions of Java in configs: compiled to Python's `re` if both read them alike."""

import re

_DIFFERENT = re.compile(r"\\[pPQEhHRXGzk]|&&|\(\?<[a-zA-Z]")
"""Syntax of Java's patterns that Python reads differently or not at all."""


class PatternError(ValueError):
    """A pattern that cannot be used; the message quotes it."""


def compile_java(pattern: str) -> re.Pattern[str]:
    """Compile a pattern of Java; `PatternError` if it is invalid or would mean something else."""
    if _DIFFERENT.search(pattern):
        raise PatternError(f"pattern {pattern!r} has syntax of Java that is not supported")
    try:
        return re.compile(pattern, re.ASCII)
    except re.error as error:
        raise PatternError(f"pattern {pattern!r} is invalid: {error}") from error
