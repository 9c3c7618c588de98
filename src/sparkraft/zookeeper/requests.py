"""ZooKeeper's operations: requests and the results of their replies.

Each request has `op`, its code on the wire; `encode(chroot)`, its body; `decode(reader, chroot)`,
the result in the body of a reply without an error. A chroot (`/kafka`, or empty) precedes each path
on the wire and is removed from each path in a result.

    Multi, MultiRead   { int32 op | bool false | int32 -1 | body of op } for each operation,
                       int32 -1 | bool true | int32 -1
    their replies      the same frames around results; op -1 with an int32 code if it failed
"""

import struct
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Protocol

from sparkraft.base.errors import DecodeError
from sparkraft.zookeeper import jute
from sparkraft.zookeeper.errors import Code, MultiError, ZooKeeperError, error_of
from sparkraft.zookeeper.jute import Reader

if TYPE_CHECKING:
    from collections.abc import Iterable

ANY_VERSION = -1
"""Matches each version of a znode."""


class Op(IntEnum):
    """Operation codes (`ZooDefs.OpCode`)."""

    CREATE = 1
    DELETE = 2
    EXISTS = 3
    GET_DATA = 4
    SET_DATA = 5
    GET_ACL = 6
    SET_ACL = 7
    SYNC = 9
    PING = 11
    GET_CHILDREN2 = 12
    CHECK = 13
    MULTI = 14
    MULTI_READ = 22
    SET_WATCHES = 101
    SASL = 102
    CLOSE = -11
    ERROR = -1


class Stat(NamedTuple):
    """The state of a znode, 68 bytes; times in milliseconds since 1970, ids of transactions."""

    czxid: int
    """Transaction that created it; the broker epoch of a broker's znode (KIP-380)."""
    mzxid: int
    ctime: int
    mtime: int
    version: int
    """Number of changes to its data."""
    cversion: int
    aversion: int
    ephemeral_owner: int
    """Session that it lives as long as; 0: persistent."""
    data_length: int
    num_children: int
    pzxid: int


class Acl(NamedTuple):
    """One entry of a znode's access control list."""

    permissions: int
    """1 read, 2 write, 4 create, 8 delete, 16 admin."""
    scheme: str
    id: str


OPEN_ACL = (Acl(31, "world", "anyone"),)
"""All rights for every client: Kafka's list unless `zookeeper.set.acl` is true."""


class Request(Protocol):
    """One operation; see the module's docstring."""

    op: ClassVar[Op]

    @property
    def path(self) -> str: ...

    def encode(self, chroot: str) -> bytes: ...

    def decode(self, reader: Reader, chroot: str) -> object: ...


def _full(chroot: str, path: str) -> bytes:
    return jute.encode_string(chroot if chroot and path == "/" else chroot + path)


def without_chroot(chroot: str, path: str) -> str:
    """Remove `chroot` from a path of a reply."""
    return path.removeprefix(chroot) or "/" if chroot else path


_STAT = struct.Struct(">4q3iq2iq")


def _stat(reader: Reader) -> Stat:
    return Stat._make(reader.read_struct(_STAT, "Stat"))


def _acl(reader: Reader) -> Acl:
    return Acl(reader.read_int(), reader.read_string(), reader.read_string())


def _encode_acl(acl: tuple[Acl, ...]) -> bytes:
    entries = [
        jute.encode_int(entry.permissions)
        + jute.encode_string(entry.scheme)
        + jute.encode_string(entry.id)
        for entry in acl
    ]
    return jute.encode_int(len(entries)) + b"".join(entries)


@dataclass(frozen=True, slots=True, kw_only=True)
class Create:
    """Create a znode; the result is its path, with the number of a sequential one."""

    op: ClassVar = Op.CREATE
    path: str
    data: bytes | None = None
    """None: it has none, which differs from empty data for Kafka's `ZkProducerIdManager`."""
    acl: tuple[Acl, ...] | None = None
    """None: that of the client's configuration, else open to all."""
    ephemeral: bool = False
    sequential: bool = False

    def encode(self, chroot: str) -> bytes:
        flags = self.ephemeral | self.sequential << 1
        return (
            _full(chroot, self.path)
            + jute.encode_buffer(self.data)
            + _encode_acl(OPEN_ACL if self.acl is None else self.acl)
            + jute.encode_int(flags)
        )

    def decode(self, reader: Reader, chroot: str) -> str:
        return without_chroot(chroot, reader.read_string())


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete:
    """Delete a znode without children; no result."""

    op: ClassVar = Op.DELETE
    path: str
    version: int = ANY_VERSION

    def encode(self, chroot: str) -> bytes:
        return _full(chroot, self.path) + jute.encode_int(self.version)

    def decode(self, reader: Reader, chroot: str) -> None:
        """Nothing to read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exists:
    """Return a znode's state; a watch fires when it is created, deleted or gets other data."""

    op: ClassVar = Op.EXISTS
    path: str
    watch: bool = False

    def encode(self, chroot: str) -> bytes:
        return _full(chroot, self.path) + jute.encode_bool(self.watch)

    def decode(self, reader: Reader, chroot: str) -> Stat:
        return _stat(reader)


@dataclass(frozen=True, slots=True, kw_only=True)
class GetData:
    """Return (data, state); a watch fires when the znode is deleted or gets other data."""

    op: ClassVar = Op.GET_DATA
    path: str
    watch: bool = False

    def encode(self, chroot: str) -> bytes:
        return _full(chroot, self.path) + jute.encode_bool(self.watch)

    def decode(self, reader: Reader, chroot: str) -> tuple[bytes, Stat]:
        data = reader.read_buffer() or b""
        return data, _stat(reader)


@dataclass(frozen=True, slots=True, kw_only=True)
class SetData:
    """Replace a znode's data; the result is its new state."""

    op: ClassVar = Op.SET_DATA
    path: str
    data: bytes
    version: int = ANY_VERSION

    def encode(self, chroot: str) -> bytes:
        return (
            _full(chroot, self.path) + jute.encode_buffer(self.data) + jute.encode_int(self.version)
        )

    def decode(self, reader: Reader, chroot: str) -> Stat:
        return _stat(reader)


@dataclass(frozen=True, slots=True, kw_only=True)
class GetChildren:
    """Return (names, state); a watch fires when a child is created or deleted, or the znode is."""

    op: ClassVar = Op.GET_CHILDREN2
    path: str
    watch: bool = False

    def encode(self, chroot: str) -> bytes:
        return _full(chroot, self.path) + jute.encode_bool(self.watch)

    def decode(self, reader: Reader, chroot: str) -> tuple[list[str], Stat]:
        names = reader.read_strings()
        return names, _stat(reader)


@dataclass(frozen=True, slots=True, kw_only=True)
class GetAcl:
    """Return (access control list, state)."""

    op: ClassVar = Op.GET_ACL
    path: str

    def encode(self, chroot: str) -> bytes:
        return _full(chroot, self.path)

    def decode(self, reader: Reader, chroot: str) -> tuple[tuple[Acl, ...], Stat]:
        count = reader.read_count()
        acl = tuple(
            Acl(reader.read_int(), reader.read_string(), reader.read_string()) for _ in range(count)
        )
        return acl, _stat(reader)


@dataclass(frozen=True, slots=True, kw_only=True)
class SetAcl:
    """Replace the access control list; the result is the znode's new state."""

    op: ClassVar = Op.SET_ACL
    path: str
    acl: tuple[Acl, ...]
    version: int = ANY_VERSION

    def encode(self, chroot: str) -> bytes:
        return _full(chroot, self.path) + _encode_acl(self.acl) + jute.encode_int(self.version)

    def decode(self, reader: Reader, chroot: str) -> Stat:
        return _stat(reader)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sync:
    """Wait until the server has caught up with the ensemble's leader; the result is the path."""

    op: ClassVar = Op.SYNC
    path: str

    def encode(self, chroot: str) -> bytes:
        return _full(chroot, self.path)

    def decode(self, reader: Reader, chroot: str) -> str:
        return without_chroot(chroot, reader.read_string())


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """In a transaction only: fail it unless the znode has this version."""

    op: ClassVar = Op.CHECK
    path: str
    version: int

    def encode(self, chroot: str) -> bytes:
        return _full(chroot, self.path) + jute.encode_int(self.version)

    def decode(self, reader: Reader, chroot: str) -> None:
        """Nothing to read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SetWatches:
    """Set the watches of this session again, after a reconnect.

    The server fires at once those whose znode has changed since transaction `zxid`.
    """

    op: ClassVar = Op.SET_WATCHES
    path: ClassVar[str] = ""
    zxid: int
    data: list[str]
    exist: list[str]
    child: list[str]

    def encode(self, chroot: str) -> bytes:
        lists = [
            [chroot if chroot and path == "/" else chroot + path for path in paths]
            for paths in (self.data, self.exist, self.child)
        ]
        return jute.encode_long(self.zxid) + b"".join(map(jute.encode_strings, lists))

    def decode(self, reader: Reader, chroot: str) -> None:
        """Nothing to read."""


@dataclass(frozen=True, slots=True)
class Ping:
    """Keep the session alive."""

    op: ClassVar = Op.PING
    path: ClassVar[str] = ""

    def encode(self, chroot: str) -> bytes:
        return b""

    def decode(self, reader: Reader, chroot: str) -> None:
        """Nothing to read."""


@dataclass(frozen=True, slots=True)
class Sasl:
    """Send a token of the client; the result is that of the server, or its end of the exchange."""

    op: ClassVar = Op.SASL
    path: ClassVar[str] = ""
    token: bytes = field(repr=False)

    def encode(self, chroot: str) -> bytes:
        return jute.encode_buffer(self.token)

    def decode(self, reader: Reader, chroot: str) -> bytes:
        return reader.read_buffer() or b""


@dataclass(frozen=True, slots=True)
class Close:
    """End the session: its ephemeral znodes are deleted at once."""

    op: ClassVar = Op.CLOSE
    path: ClassVar[str] = ""

    def encode(self, chroot: str) -> bytes:
        return b""

    def decode(self, reader: Reader, chroot: str) -> None:
        """Nothing to read."""


Operation = Create | Delete | SetData | Check
"""The operations that a transaction may contain."""

_MANY_HEADER = struct.Struct(">i?i")
_NO_ERROR = -1
_MANY_END = _MANY_HEADER.pack(Op.ERROR, 1, _NO_ERROR)


def _encode_many(requests: "Iterable[Operation | GetData]", chroot: str) -> bytes:
    frames: list[bytes] = []
    for request in requests:
        frames += (_MANY_HEADER.pack(request.op, 0, _NO_ERROR), request.encode(chroot))
    return b"".join(frames) + _MANY_END


def _read_op(reader: Reader) -> int:
    """Read the header of the next result: its op, or -1 for an error."""
    op: int
    op, done, _ = reader.read_struct(_MANY_HEADER, "header of a result")
    if done:
        raise DecodeError("fewer results than requests sent together", at=reader.at)
    return op


@dataclass(frozen=True, slots=True)
class Multi:
    """A transaction: all operations, or none; the result is a list of theirs.

    `decode` raises `MultiError` if it was not applied.
    """

    op: ClassVar = Op.MULTI
    operations: tuple[Operation, ...]

    @property
    def path(self) -> str:
        return self.operations[0].path if self.operations else ""

    def encode(self, chroot: str) -> bytes:
        return _encode_many(self.operations, chroot)

    def decode(self, reader: Reader, chroot: str) -> list[object]:
        results: list[object] = []
        codes: list[int] = []
        for operation in self.operations:
            if _read_op(reader) == Op.ERROR:
                codes.append(reader.read_int())
            else:
                results.append(operation.decode(reader, chroot))
        if codes:
            raise self._failure(tuple(codes))
        return results

    def _failure(self, codes: tuple[int, ...]) -> MultiError:
        causes = (
            at for at, code in enumerate(codes) if code not in (Code.OK, Code.RUNTIME_INCONSISTENCY)
        )
        index = next(causes, 0)
        return MultiError(codes, self.operations[index].path, index)


@dataclass(frozen=True, slots=True)
class MultiRead:
    """Reads of small znodes, sent together; the result has a `ZooKeeperError` for a refused one.

    Servers set no watches for them. Servers before ZooKeeper 3.6 respond with UNIMPLEMENTED and
    close the connection (`UnimplementedRequestProcessor`); `ZooKeeperClient.submit_all` then sends
    the reads one by one. All results arrive in one frame, which has a longest length.
    """

    op: ClassVar = Op.MULTI_READ
    path: ClassVar[str] = ""
    reads: tuple[GetData, ...]

    def encode(self, chroot: str) -> bytes:
        return _encode_many(self.reads, chroot)

    def decode(self, reader: Reader, chroot: str) -> list[tuple[bytes, Stat] | ZooKeeperError]:
        return [
            error_of(reader.read_int(), read.path)
            if _read_op(reader) == Op.ERROR
            else read.decode(reader, chroot)
            for read in self.reads
        ]
