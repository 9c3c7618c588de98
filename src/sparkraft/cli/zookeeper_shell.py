"""`zookeeper-shell HOST:PORT[/chroot] [COMMAND …]`: Kafka 3.9's tool, without a JVM.

Without a command it reads commands from standard input, one per line. The output equals that of
ZooKeeper 3.8's own shell after it has connected.
"""

import asyncio
import shlex
import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

from sparkraft.cli.errors import UsageError
from sparkraft.cli.options import Options
from sparkraft.cli.zookeeper_session import add_security, ensemble_session
from sparkraft.zookeeper.client import ZooKeeperClient
from sparkraft.zookeeper.errors import (
    BadVersionError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    ZooKeeperError,
)
from sparkraft.zookeeper.requests import (
    ANY_VERSION,
    Create,
    Delete,
    Exists,
    GetAcl,
    GetChildren,
    GetData,
    SetData,
    Stat,
    Sync,
)

SESSION_MS = 30_000


class _Arguments(Options):
    """The arguments of one command of the shell."""

    def __init__(self, name: str, about: str) -> None:
        super().__init__(name, about, prog=name, add_help=False)

    def path(self) -> None:
        self.add_argument("path")


def main(argv: list[str]) -> int:
    """Run one command, or those of standard input."""
    options = Options("zookeeper-shell", "Reads and changes znodes.", epilog=_list_commands())
    options.add_argument("server", metavar="HOST:PORT[/chroot]", help="the ensemble's servers")
    options.add_argument("command", nargs="*", help="a command; none: read them from stdin")
    add_security(options)
    argv = _with_option_first(argv)
    known, rest = options.parse_known_args(argv)
    command = argv[argv.index(known.server) + 1 :] if known.command or rest else []
    return asyncio.run(_main(known.server, known.zk_tls_config_file, command))


_TLS_OPTIONS = ("--zk-tls-config-file", "-zk-tls-config-file")


def _with_option_first(argv: list[str]) -> list[str]:
    """The arguments; Kafka's script has the option after the server, with one hyphen."""
    if argv[1:2] and argv[1] in _TLS_OPTIONS and argv[2:3]:
        return [_TLS_OPTIONS[0], argv[2], argv[0], *argv[3:]]
    return argv


async def _main(server: str, file: str | None, command: list[str]) -> int:
    async with ensemble_session(server, file, session_timeout_ms=SESSION_MS) as client:
        if command:
            return await _run(client, command)
        return await _run_lines(client)


async def _run_lines(client: ZooKeeperClient) -> int:
    failed = 0
    while line := await asyncio.to_thread(sys.stdin.readline):
        words = shlex.split(line)
        if words == ["quit"]:
            break
        if words:
            failed |= await _run(client, words)
    return failed


async def _run(client: ZooKeeperClient, words: list[str]) -> int:
    name, *rest = words
    if name not in _COMMANDS:
        print(_list_commands(), file=sys.stderr)
        return 1
    command = _COMMANDS[name]
    try:
        await command(client, rest)
    except UsageError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 1
    except ZooKeeperError as error:
        print(_sentence(error), file=sys.stderr)
        return 1
    return 0


def _sentence(error: ZooKeeperError) -> str:
    match error:
        case NoNodeError():
            return f"Node does not exist: {error.path}"
        case NodeExistsError():
            return f"Node already exists: {error.path}"
        case NotEmptyError():
            return f"Node not empty: {error.path}"
        case BadVersionError():
            return f"version No is not valid : {error.path}"
        case _:
            return str(error)


async def _ls(client: ZooKeeperClient, argv: list[str]) -> None:
    arguments = _Arguments("ls", "The children of a znode.")
    arguments.flag("-s", "with the state")
    arguments.flag("-R", "with all znodes below, one per line")
    arguments.path()
    values = arguments.parse(argv)
    if values.R:
        await _print_below(client, values.path)
        return
    names, stat = await client.submit(GetChildren(path=values.path))
    print(f"[{', '.join(sorted(names))}]")
    if values.s:
        _print_stat(stat)


async def _print_below(client: ZooKeeperClient, path: str) -> None:
    names, _ = await client.submit(GetChildren(path=path))
    print(path)
    for name in sorted(names):
        await _print_below(client, f"{path.rstrip('/')}/{name}")


async def _get(client: ZooKeeperClient, argv: list[str]) -> None:
    arguments = _Arguments("get", "The data of a znode.")
    arguments.flag("-s", "with the state")
    arguments.path()
    values = arguments.parse(argv)
    data, stat = await client.submit(GetData(path=values.path))
    print(data.decode(errors="replace"))
    if values.s:
        _print_stat(stat)


async def _stat(client: ZooKeeperClient, argv: list[str]) -> None:
    arguments = _Arguments("stat", "The state of a znode.")
    arguments.path()
    _print_stat(await client.submit(Exists(path=arguments.parse(argv).path)))


async def _create(client: ZooKeeperClient, argv: list[str]) -> None:
    arguments = _Arguments("create", "Create a znode.")
    arguments.flag("-s", "append a sequence number to its name")
    arguments.flag("-e", "until the end of this session")
    arguments.path()
    arguments.add_argument("data", nargs="?", default="")
    values = arguments.parse(argv)
    request = Create(
        path=values.path, data=values.data.encode(), ephemeral=values.e, sequential=values.s
    )
    made = await client.submit(request)
    print(f"Created {made}", file=sys.stderr)  # like ZooKeeper's shell


async def _set(client: ZooKeeperClient, argv: list[str]) -> None:
    arguments = _Arguments("set", "Replace the data of a znode.")
    arguments.flag("-s", "print the new state")
    _add_version(arguments)
    arguments.path()
    arguments.add_argument("data")
    values = arguments.parse(argv)
    request = SetData(path=values.path, data=values.data.encode(), version=values.v)
    stat = await client.submit(request)
    if values.s:
        _print_stat(stat)


async def _delete(client: ZooKeeperClient, argv: list[str]) -> None:
    arguments = _Arguments("delete", "Delete a znode without children.")
    _add_version(arguments)
    arguments.path()
    values = arguments.parse(argv)
    await client.submit(Delete(path=values.path, version=values.v))


async def _delete_all(client: ZooKeeperClient, argv: list[str]) -> None:
    arguments = _Arguments("deleteall", "Delete a znode and all below it.")
    arguments.path()
    await _delete_below(client, arguments.parse(argv).path)


async def _delete_below(client: ZooKeeperClient, path: str) -> None:
    names, _ = await client.submit(GetChildren(path=path))
    for name in names:
        await _delete_below(client, f"{path.rstrip('/')}/{name}")
    await client.submit(Delete(path=path))


async def _get_acl(client: ZooKeeperClient, argv: list[str]) -> None:
    arguments = _Arguments("getAcl", "The access control list of a znode.")
    arguments.flag("-s", "with the state")
    arguments.path()
    values = arguments.parse(argv)
    acl, stat = await client.submit(GetAcl(path=values.path))
    for entry in acl:
        rights = "".join(
            letter for bit, letter in enumerate("rwcda") if entry.permissions >> bit & 1
        )
        ordered = "".join(letter for letter in "cdrwa" if letter in rights)
        print(f"'{entry.scheme},'{entry.id}\n: {ordered}")
    if values.s:
        _print_stat(stat)


async def _sync(client: ZooKeeperClient, argv: list[str]) -> None:
    arguments = _Arguments("sync", "Wait until the server has caught up.")
    arguments.path()
    await client.submit(Sync(path=arguments.parse(argv).path))
    print("Sync is OK")


def _add_version(arguments: Options) -> None:
    arguments.value("-v", about="only if it has this version", type=int, default=ANY_VERSION)


def _print_stat(stat: Stat) -> None:
    print(f"cZxid = 0x{stat.czxid:x}")
    print(f"ctime = {_java_date(stat.ctime)}")
    print(f"mZxid = 0x{stat.mzxid:x}")
    print(f"mtime = {_java_date(stat.mtime)}")
    print(f"pZxid = 0x{stat.pzxid:x}")
    print(f"cversion = {stat.cversion}")
    print(f"dataVersion = {stat.version}")
    print(f"aclVersion = {stat.aversion}")
    print(f"ephemeralOwner = 0x{stat.ephemeral_owner:x}")
    print(f"dataLength = {stat.data_length}")
    print(f"numChildren = {stat.num_children}")


def _java_date(ms: int) -> str:
    """A time as Java's `Date.toString`, in UTC."""
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%a %b %d %H:%M:%S UTC %Y")


_COMMANDS: dict[str, Callable[[ZooKeeperClient, list[str]], Awaitable[None]]] = {
    "create": _create,
    "delete": _delete,
    "deleteall": _delete_all,
    "get": _get,
    "getAcl": _get_acl,
    "ls": _ls,
    "set": _set,
    "stat": _stat,
    "sync": _sync,
}


def _list_commands() -> str:
    return f"commands: {', '.join(_COMMANDS)}, quit"
