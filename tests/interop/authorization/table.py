"""The table of `rows.txt`: what each request needs, and the users that may or may not send it."""

import json
import re
from base64 import b64decode
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from sparkraft.base.ids import Uuid
from sparkraft.protocol.api_keys import API_INFO, ApiKey
from sparkraft.protocol.declare import Message
from sparkraft.security.acls import CLUSTER_NAME, IMPLIED_BY, AclOperation, AclResourceType
from tests.interop.differential.building import batch

FILE = Path(__file__).with_name("rows.txt")

HEAD = re.compile(r"(?P<key>\w+)(?P<versions>( v\d+)*): (?P<label>.+)")

LISTENERS = {"broker": ("broker",), "controller": ("controller",), "both": ("broker", "controller")}

OPERATIONS = [
    operation
    for operation in AclOperation
    if operation not in {AclOperation.UNKNOWN, AclOperation.ANY, AclOperation.ALL}
]


class Grant(NamedTuple):
    """One operation on one resource."""

    operation: AclOperation
    kind: AclResourceType
    name: str

    def __str__(self) -> str:
        """As in the table."""
        return f"{self.operation.name} {self.kind.name}:{self.name}"

    def others(self) -> list["Grant"]:
        """Every other operation on the resource that does not imply this one."""
        enough = {self.operation, *IMPLIED_BY.get(self.operation, ())}
        return [self._replace(operation=each) for each in OPERATIONS if each not in enough]

    def alternatives(self) -> list["Grant"]:
        """Every other operation on the resource, also those that imply this one."""
        every = [*OPERATIONS, AclOperation.ALL]
        return [self._replace(operation=each) for each in every if each is not self.operation]


User = frozenset[Grant]
"""A principal, by all that it is allowed."""


@dataclass(frozen=True)
class Row:
    """A request, and the ways to be allowed to send it."""

    key: ApiKey
    label: str
    versions: tuple[int, ...]
    listeners: tuple[str, ...]
    ways: tuple[User, ...]
    denied_with: tuple[User, ...]
    is_left_out: bool
    is_once: bool
    body: Any = field(hash=False)

    def __str__(self) -> str:
        """As in the table."""
        return f"{self.key.name}: {self.label}"

    def request(self, topic_id: Callable[[str], Uuid]) -> Message:
        """Its message."""
        return from_json(API_INFO[self.key].request_class(), self.body, topic_id)

    @property
    def is_checked(self) -> bool:
        """Whether rights make a difference."""
        return bool(self.ways or self.denied_with)

    def denied_users(self) -> list[User]:
        """Users without any right, or with all operations on a resource but the one they need."""
        lacking = [
            way - {missing} | frozenset(missing.others())
            for way in self.ways
            for missing in sorted(way)
        ]
        return _once([frozenset(), *self.denied_with, *(u for u in lacking if not self._may(u))])

    def _may(self, user: User) -> bool:
        """Whether a user has all rights of another way."""
        return any(all(_has(user, grant) for grant in way) for way in self.ways)

    def single_changes(self) -> list[User]:
        """Each way with one of its operations replaced by each other one."""
        if self.is_once:
            return []
        return _once(
            way - {grant} | {other}
            for way in self.ways
            for grant in sorted(way)
            for other in grant.alternatives()
        )


def _has(user: User, grant: Grant) -> bool:
    enough = {grant.operation, *IMPLIED_BY.get(grant.operation, ())}
    return any(grant._replace(operation=each) in user for each in enough)


def _once(users: Any) -> list[User]:
    return list(dict.fromkeys(users))


def rows() -> list[Row]:
    """The table."""
    text = "".join(line for line in FILE.read_text().splitlines(True) if not line.startswith("#"))
    return [_row(stanza) for stanza in text.strip().split("\n\n")]


def _row(stanza: str) -> Row:
    words, _, body = stanza.partition("\n{")
    first, *more = words.splitlines()
    head = HEAD.fullmatch(first)
    assert head is not None, first
    key = ApiKey[head["key"]]
    info = API_INFO[key]
    latest = info.max_version - int(info.latest_version_unstable)
    versions = tuple(int(each[1:]) for each in head["versions"].split()) or (latest,)
    listeners: tuple[str, ...] = ()
    ways, never = [], []
    for line in more:
        word, _, rest = line.partition(" ")
        if word == "on":
            listeners = LISTENERS[rest]
        elif word == "needs":
            ways.append(_user(rest))
        elif word == "never":
            never.append(_user(rest.removeprefix("with ")))
        else:
            assert line in {"left out", "once"}, line
    return Row(
        key, head["label"], versions, listeners, tuple(ways), tuple(never),
        "left out" in more, "once" in more, json.loads("{" + body),
    )  # fmt: skip


def _user(text: str) -> User:
    return frozenset(map(_grant, text.split(", ")))


def _grant(text: str) -> Grant:
    operation, _, resource = text.partition(" ")
    kind, _, name = resource.partition(":")
    return Grant(
        AclOperation[operation],
        AclResourceType[kind.upper().replace("-", "_")],
        name or CLUSTER_NAME,
    )


def from_json(kind: type[Message], given: Any, topic_id: Callable[[str], Uuid]) -> Message:
    """A message from Kafka's JSON; fields that are not given have their defaults."""
    by_name = {declared.json_name: declared for declared in kind.SCHEMA.fields}
    unknown = given.keys() - by_name.keys()
    assert not unknown, f"{kind.__name__} has no {sorted(unknown)}"
    made = kind()
    for name, value in given.items():
        declared = by_name[name]
        is_list = declared.kind == "array"
        element = declared.element if is_list else declared.kind
        if declared.kind == "struct":
            element = declared.struct
        values = list(_values(element, value if is_list else [value], topic_id))
        setattr(made, declared.name, None if value is None else values if is_list else values[0])
    return made


def _values(
    element: str | type[Message], given: Any, topic_id: Callable[[str], Uuid]
) -> Iterator[Any]:
    for value in given or ():
        if value is None:
            yield None
        elif not isinstance(element, str):
            yield from_json(element, value, topic_id)
        elif element == "uuid":
            is_name = value.startswith("id of ")
            yield topic_id(value.removeprefix("id of ")) if is_name else Uuid.parse(value)
        elif element == "blob":
            yield b64decode(value)
        elif element == "records":
            is_transactional = value == "transactional batch"
            producer = (777_777, 0, 0) if is_transactional else (-1, -1, -1)
            yield batch(1, producer=producer, transactional=is_transactional)
        else:
            yield value
