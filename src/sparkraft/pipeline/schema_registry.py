"""Avro schemas of a registry with Confluent's REST API.

    GET /schemas/ids/ID                     the schema that a value was written with
    GET /subjects/NAME/versions/latest      the schema of a subject
    GET /subjects/NAME/versions/VERSION     a schema that another one refers to
    POST /subjects/NAME/versions            registers the schema of a sink

A schema never changes, so each process keeps those that it has read.
"""

from __future__ import annotations

import base64
import json
import time
from typing import Any, Final
from urllib import error, parse, request

from sparkraft.pipeline.spec import SpecError

_TIMEOUT_SECONDS: Final = 10
_ATTEMPTS_MAX: Final = 4
_PAUSE_SECONDS: Final = 0.25
_ANSWER_BYTES_MAX: Final = 16 << 20
_MESSAGE_BYTES_MAX: Final = 10_000
_REFERENCES_MAX: Final = 100
_MISSING_SECONDS: Final = 30.0
"""An id that the registry does not know is not asked for again in this time."""

_KEPT_MAX: Final = 10_000
"""Schemas and missing ids that a process keeps."""

_NOT_FOUND: Final = 404
_SERVER_ERROR: Final = 500


class RegistryError(SpecError):
    """The registry does not answer, or refuses to."""


class Registry:
    """A client.

    Args:
        url: with user and password for basic authentication, if it needs them.
    """

    def __init__(self, url: str) -> None:
        read = parse.urlsplit(url)
        if read.scheme not in {"http", "https"} or not read.hostname:
            raise SpecError(f"registry must be an http or https URL, not {_shown(url)}")
        host = f"[{read.hostname}]" if ":" in read.hostname else read.hostname
        place = f"{host}:{read.port}" if read.port else host
        self._base = f"{read.scheme}://{place}{read.path.rstrip('/')}"
        self._headers = {"Accept": "application/vnd.schemaregistry.v1+json"}
        if read.username is not None:
            pair = f"{parse.unquote(read.username)}:{parse.unquote(read.password or '')}"
            token = base64.b64encode(pair.encode()).decode()
            self._headers["Authorization"] = f"Basic {token}"

    def by_id(self, number: int) -> tuple[str, ...] | None:
        """The schemas that an id's schema refers to, then this one; None if it does not exist."""
        found = self._get(f"/schemas/ids/{number}")
        return None if found is None else self._with_references(found, f"schema {number}", {})

    def latest(self, subject: str) -> tuple[str, ...]:
        """The same for the last version of a subject.

        Raises:
            SpecError: the subject does not exist.
        """
        found = self._get(f"/subjects/{parse.quote(subject, safe='')}/versions/latest")
        if found is None:
            raise SpecError(f"the registry has no subject {subject}")
        return self._with_references(found, f"subject {subject}", {})

    def register(self, subject: str, schema: str) -> int:
        """Add a schema to a subject, unless it has an equal one; return its id.

        Raises:
            RegistryError: the registry refuses it, such as for being incompatible.
        """
        path = f"/subjects/{parse.quote(subject, safe='')}/versions"
        found = self._get(path, json.dumps({"schema": schema}).encode())
        if found is None:
            raise RegistryError(f"the schema registry {self._base} does not take {path}")
        return int(found["id"])

    def ask(self, subject: str) -> None:
        """Ask something, to see whether the registry answers."""
        self._get(f"/subjects/{parse.quote(subject, safe='')}/versions/latest")

    def _with_references(
        self, found: dict[str, Any], what: str, known: dict[tuple[str, int], tuple[str, ...]]
    ) -> tuple[str, ...]:
        kind = found.get("schemaType", "AVRO")
        if kind != "AVRO":
            raise SpecError(f"{what} of the registry is of type {kind}, not AVRO")
        texts: list[str] = []
        for each in found.get("references") or ():
            key = str(each["subject"]), int(each["version"])
            if key not in known:
                if len(known) == _REFERENCES_MAX:
                    raise SpecError(f"{what} refers to more than {_REFERENCES_MAX} schemas")
                known[key] = ()
                path = f"/subjects/{parse.quote(key[0], safe='')}/versions/{key[1]}"
                other = self._get(path)
                if other is None:
                    raise SpecError(f"{what} refers to {key[0]} version {key[1]}, which is missing")
                known[key] = self._with_references(other, what, known)
            texts += [text for text in known[key] if text not in texts]
        return (*texts, str(found["schema"]))

    def _get(self, path: str, body: bytes | None = None) -> dict[str, Any] | None:
        """The JSON at a path, to which a body is sent if given; None if it does not exist."""
        headers = self._headers
        if body is not None:
            headers = headers | {"Content-Type": "application/vnd.schemaregistry.v1+json"}
        asked = request.Request(self._base + path, body, headers)
        reason = ""
        for attempt in range(_ATTEMPTS_MAX):
            if attempt:
                time.sleep(_PAUSE_SECONDS * 2**attempt)
            try:
                with request.urlopen(asked, timeout=_TIMEOUT_SECONDS) as answer:
                    found: dict[str, Any] = json.loads(answer.read(_ANSWER_BYTES_MAX))
                    return found
            except error.HTTPError as refused:
                if refused.code == _NOT_FOUND:
                    return None
                reason = f"{refused.code} {_message(refused)}"
                if refused.code < _SERVER_ERROR:
                    break
            except (OSError, ValueError) as broken:
                reason = str(getattr(broken, "reason", broken))
        raise RegistryError(f"the schema registry {self._base} does not answer {path}: {reason}")


def _message(refused: error.HTTPError) -> str:
    """The registry's own message, else HTTP's."""
    try:
        return str(json.loads(refused.read(_MESSAGE_BYTES_MAX))["message"])
    except (OSError, ValueError, KeyError, TypeError):
        return str(refused.reason)


def _shown(url: str) -> str:
    """A URL without its password."""
    return url.rpartition("@")[2]


_KEPT: Final[dict[tuple[str, int], tuple[tuple[str, ...] | None, float]]] = {}


def schema_by_id(url: str, number: int) -> tuple[str, ...] | None:
    """`Registry.by_id` of this process, which asks once for each schema."""
    found, since = _KEPT.get((url, number), (None, -_MISSING_SECONDS))
    now = time.monotonic()
    if found is not None or now - since < _MISSING_SECONDS:
        return found
    found = Registry(url).by_id(number)
    if len(_KEPT) >= _KEPT_MAX:
        _KEPT.clear()
    _KEPT[url, number] = found, now
    return found
