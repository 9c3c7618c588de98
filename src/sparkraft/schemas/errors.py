"""Errors of schemas and of values that they describe."""

from __future__ import annotations

from sparkraft.base.errors import InputError


class SchemaError(InputError):
    """A schema is invalid, or cannot be read."""


class UndecodableError(ValueError):
    """Bytes are not a value of their format, or exceed a bound; the message is a sentence."""
