"""Schemas of a registry with Confluent's REST API.

    GET /schemas/ids/ID                     the schema that a value was written with
    GET /subjects/NAME/versions/latest      the schema of a subject
    GET /subjects/NAME/versions/VERSION     a schema that another one refers to
    POST /subjects/NAME/versions            registers the schema of a sink
    POST /subjects/NAME                     the version of a schema that another one will refer to

A value begins with a frame: a zero byte, and the id of its schema in four bytes. A schema never
changes, so each process keeps those that it has read.
"""

from __future__ import annotations

import base64
import json
import time
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any, Final
from urllib import error, parse, request

from sparkraft.schemas.errors import SchemaError

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

HEADER_BYTES: Final = 5
"""Of a frame."""

_NOT_FOUND: Final = 404
_SERVER_ERROR: Final = 500


def framed_id(value: bytes) -> int | None:
    """The id of the schema that a value begins with; None without a frame."""
    if len(value) < HEADER_BYTES or value[0] != 0:
        return None
    return int.from_bytes(value[1:HEADER_BYTES], "big")


class RegistryError(SchemaError):
    """The registry does not answer, or refuses to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredSchema:
    """A schema of a registry.

    Attributes:
        kind: AVRO, PROTOBUF or JSON.
        text: the schema.
        references: schemas that it refers to, by the names that it uses; those that others need
            come first.
    """

    kind: str
    text: str
    references: tuple[tuple[str, str], ...] = ()


class Registry:
    """A client.

    Args:
        url: with user and password for basic authentication, if it needs them.
        attempts: of a request; the registry may be restarting.
        timeout_seconds: of an attempt.
    """

    def __init__(
        self, url: str, *, attempts: int = _ATTEMPTS_MAX, timeout_seconds: float = _TIMEOUT_SECONDS
    ) -> None:
        self._attempts = attempts
        self._timeout_seconds = timeout_seconds
        read, port = _split(url)
        host = f"[{read.hostname}]" if ":" in (read.hostname or "") else read.hostname
        place = f"{host}:{port}" if port else host
        self._base = f"{read.scheme}://{place}{read.path.rstrip('/')}"
        self._headers = {"Accept": "application/vnd.schemaregistry.v1+json"}
        if read.username is not None:
            pair = f"{parse.unquote(read.username)}:{parse.unquote(read.password or '')}"
            token = base64.b64encode(pair.encode()).decode()
            self._headers["Authorization"] = f"Basic {token}"

    def by_id(self, number: int) -> RegisteredSchema | None:
        """The schema of an id; None if it does not exist."""
        found = self._get(f"/schemas/ids/{number}")
        return None if found is None else self._with_references(found, f"schema {number}")

    def latest(self, subject: str) -> RegisteredSchema:
        """The schema of the last version of a subject.

        Raises:
            SchemaError: the subject does not exist.
        """
        found = self._get(f"{_subject(subject)}/versions/latest")
        if found is None:
            raise SchemaError(f"the registry has no subject {subject}")
        return self._with_references(found, f"subject {subject}")

    def register(self, subject: str, schema: RegisteredSchema) -> int:
        """Add a schema to a subject, unless it has an equal one; return its id.

        Each schema that it refers to becomes a subject of its own, with the name of the reference,
        as Confluent's serializers register the files that a Protobuf schema imports.

        Raises:
            RegistryError: the registry refuses it, such as for being incompatible.
        """
        references: list[dict[str, Any]] = []
        for name, text in schema.references:
            other = _body(schema.kind, text, [each for each in references if each["name"] in text])
            self._registered(name, other)
            found = self._get(_subject(name), json.dumps(other).encode())
            if found is None:
                raise RegistryError(f"the schema registry {self._base} has no subject {name}")
            version = int(self._field(found, "version"))
            references.append({"name": name, "subject": name, "version": version})
        return self._registered(subject, _body(schema.kind, schema.text, references))

    def _registered(self, subject: str, body: dict[str, Any]) -> int:
        path = f"{_subject(subject)}/versions"
        found = self._get(path, json.dumps(body).encode())
        if found is None:
            raise RegistryError(f"the schema registry {self._base} does not take {path}")
        return int(self._field(found, "id"))

    def ask(self, subject: str) -> None:
        """Ask something, to see whether the registry answers."""
        self._get(f"{_subject(subject)}/versions/latest")

    def _with_references(self, found: dict[str, Any], what: str) -> RegisteredSchema:
        texts: dict[str, str] = {}
        self._add_references(found, what, texts, set())
        return RegisteredSchema(
            kind=str(found.get("schemaType", "AVRO")),
            text=str(self._field(found, "schema")),
            references=tuple(texts.items()),
        )

    def _add_references(
        self, found: dict[str, Any], what: str, texts: dict[str, str], known: set[tuple[str, int]]
    ) -> None:
        for each in found.get("references") or ():
            key = str(each["subject"]), int(each["version"])
            if key in known:
                continue
            if len(known) == _REFERENCES_MAX:
                raise SchemaError(f"{what} refers to more than {_REFERENCES_MAX} schemas")
            known.add(key)
            other = self._get(f"{_subject(key[0])}/versions/{key[1]}")
            if other is None:
                raise SchemaError(f"{what} refers to {key[0]} version {key[1]}, which is missing")
            self._add_references(other, what, texts, known)
            texts[str(each["name"])] = str(self._field(other, "schema"))

    def _field(self, found: dict[str, Any], name: str) -> Any:
        """A field that each response of a registry has; a service of another kind may lack it."""
        if name not in found:
            raise RegistryError(
                f"{self._base} is not a schema registry: its response has no {name}"
            )
        return found[name]

    def _get(self, path: str, body: bytes | None = None) -> dict[str, Any] | None:
        """The JSON at a path, to which a body is sent if given; None if it does not exist."""
        headers = self._headers
        if body is not None:
            headers = headers | {"Content-Type": "application/vnd.schemaregistry.v1+json"}
        asked = request.Request(self._base + path, body, headers)
        reason = ""
        for attempt in range(self._attempts):
            if attempt:
                time.sleep(_PAUSE_SECONDS * 2**attempt)
            try:
                with _OPENER.open(asked, timeout=self._timeout_seconds) as answer:
                    return _object_in(answer.read(_ANSWER_BYTES_MAX))
            except error.HTTPError as refused:
                if refused.code == _NOT_FOUND:
                    return None
                reason = f"{refused.code} {_message(refused)}"
                if refused.code < _SERVER_ERROR:
                    break
            except HTTPException:
                reason = "the response is not HTTP"
            except (OSError, ValueError, RecursionError) as broken:
                reason = str(getattr(broken, "reason", broken))
        raise RegistryError(f"the schema registry {self._base} does not answer {path}: {reason}")


class _Redirects(request.HTTPRedirectHandler):
    """Follows redirects, without the password if they lead to another server."""

    def redirect_request(self, req: request.Request, *args: Any) -> request.Request | None:
        redirected = super().redirect_request(req, *args)
        if redirected is not None and _origin(redirected) != _origin(req):
            redirected.remove_header("Authorization")
        return redirected


_OPENER: Final = request.build_opener(_Redirects)


def _origin(asked: request.Request) -> tuple[str, str]:
    """Scheme and authority of a request."""
    return asked.type, asked.host


def _split(url: str) -> tuple[parse.SplitResult, int | None]:
    """The parts of a registry's URL, and its port.

    Raises:
        SchemaError: it is not one; the message does not have its password.
    """
    try:
        read = parse.urlsplit(url)
        port = read.port
    except ValueError:
        read, port = parse.urlsplit(""), None
    if read.scheme not in {"http", "https"} or not read.hostname:
        raise SchemaError(
            f"registry must be an http or https URL, not {_shown(url)}; in a user name and a "
            "password, characters such as / and @ are written as %2F and %40"
        )
    return read, port


def _object_in(content: bytes) -> dict[str, Any]:
    found = json.loads(content)
    if not isinstance(found, dict):
        raise ValueError("the response is not a JSON object")  # noqa: TRY004 (not our caller's)
    return found


def _subject(name: str) -> str:
    return f"/subjects/{parse.quote(name, safe='')}"


def _body(kind: str, text: str, references: list[dict[str, Any]]) -> dict[str, Any]:
    """A schema as the API takes it; Avro's kind is left out, which old registries do not know."""
    body: dict[str, Any] = {"schema": text}
    if kind != "AVRO":
        body["schemaType"] = kind
    if references:
        body["references"] = references
    return body


def _message(refused: error.HTTPError) -> str:
    """The registry's own message, else HTTP's."""
    try:
        return str(json.loads(refused.read(_MESSAGE_BYTES_MAX))["message"])
    except (OSError, ValueError, KeyError, TypeError):
        return str(refused.reason)


def _shown(url: str) -> str:
    """A URL without its password."""
    return url.rpartition("@")[2]


_KEPT: Final[dict[tuple[str, int], tuple[RegisteredSchema | None, float]]] = {}


def schema_by_id(url: str, number: int) -> RegisteredSchema | None:
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
