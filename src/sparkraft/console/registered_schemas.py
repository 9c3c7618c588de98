"""Schemas of a registry that records of this process were written with.

They are requested in a thread, before the records are decoded. Records are hostile: one of them may
name any id, so that the number of requests, and the time that a scan waits for them, are bounded.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sparkraft.base.errors import InputError
from sparkraft.schemas.avro_schema import parse_any
from sparkraft.schemas.protobuf_schema import parse_protobuf
from sparkraft.schemas.registry import Registry, RegistryError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from sparkraft.schemas.avro_schema import Schema
    from sparkraft.schemas.protobuf_schema import ProtobufSchema
    from sparkraft.schemas.registry import RegisteredSchema

KEPT_MAX = 1_000
"""Schemas, and ids without one."""

LOOKUPS_MAX = 20
"""Ids that are requested for one batch of records."""

LOOKUP_SECONDS_MAX = 3.0
"""For all of them."""

PROBLEM_SECONDS = 30.0
"""An id without a schema is not requested again in this time, nor any id from a registry that does
not answer."""

_TIMEOUT_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class KnownSchema:
    """A schema of the registry; `kind` is AVRO, PROTOBUF or JSON."""

    kind: str
    avro: Schema | None = None
    protobuf: ProtobufSchema | None = None


@dataclass(frozen=True, slots=True)
class _Problem:
    text: str
    until: float


class RegisteredSchemas:
    """See the module docstring."""

    def __init__(self, url: str, clock: Callable[[], float] = time.monotonic) -> None:
        """Use the registry at `url`.

        Raises:
            SchemaError: it is not a URL.
        """
        self._registry = Registry(url, attempts=1, timeout_seconds=_TIMEOUT_SECONDS)
        self._clock = clock
        self._known: dict[int, KnownSchema | _Problem] = {}
        self._lock = asyncio.Lock()
        self._failure: _Problem | None = None
        """Of a registry that does not answer: it is asked for nothing for a while."""

    def get(self, number: int) -> KnownSchema | str:
        """The schema of an id, or why it is not known."""
        found = self._known.get(number)
        if found is None and self._failure is not None:
            return self._failure.text
        if found is None:
            return f"schema {number} was not requested from the registry yet"
        return found.text if isinstance(found, _Problem) else found

    async def load(self, numbers: Iterable[int]) -> None:
        """Request the schemas of ids that are not known, within the bounds."""
        if not any(map(self._is_wanted, numbers)):
            return
        async with self._lock:
            wanted = [each for each in numbers if self._is_wanted(each)][:LOOKUPS_MAX]
            if wanted:
                found = await asyncio.to_thread(self._requested, wanted)
                if len(self._known) + len(found) > KEPT_MAX:
                    self._known.clear()
                self._known.update(found)

    def _is_wanted(self, number: int) -> bool:
        if self._failure is not None and self._failure.until > self._clock():
            return False
        found = self._known.get(number)
        return found is None or (isinstance(found, _Problem) and found.until <= self._clock())

    def _requested(self, numbers: list[int]) -> dict[int, KnownSchema | _Problem]:
        found: dict[int, KnownSchema | _Problem] = {}
        deadline = self._clock() + LOOKUP_SECONDS_MAX
        self._failure = None
        for number in numbers:
            if self._clock() >= deadline:
                break
            try:
                found[number] = self._compiled(number, self._registry.by_id(number))
            except RegistryError as error:
                self._failure = self._problem(str(error))
                break
            except InputError as error:
                found[number] = self._problem(str(error))
        return found

    def _compiled(self, number: int, registered: RegisteredSchema | None) -> KnownSchema | _Problem:
        if registered is None:
            return self._problem(f"the registry has no schema {number}")
        try:
            return compiled(registered)
        except InputError as error:
            return self._problem(f"schema {number}: {error}")
        except (TypeError, KeyError, AttributeError, ValueError) as error:
            return self._problem(f"schema {number} is malformed: {error}")

    def _problem(self, text: str) -> _Problem:
        return _Problem(text, self._clock() + PROBLEM_SECONDS)


def compiled(registered: RegisteredSchema) -> KnownSchema:
    """The schema, parsed.

    Raises:
        SchemaError: it is invalid.
    """
    if registered.kind == "AVRO":
        others = [text for _, text in registered.references]
        return KnownSchema("AVRO", avro=parse_any(registered.text, known=others))
    if registered.kind == "PROTOBUF":
        return KnownSchema(
            "PROTOBUF", protobuf=parse_protobuf(registered.text, imported=registered.references)
        )
    return KnownSchema(registered.kind)
