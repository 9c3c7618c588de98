"""Reads the znodes of a Kafka cluster, level by level, many requests at once."""

from collections.abc import Awaitable, Callable

from sparkraft.zookeeper.client import ZooKeeperClient
from sparkraft.zookeeper.controller.steps import pieces
from sparkraft.zookeeper.errors import NoNodeError
from sparkraft.zookeeper.migration.tree import ZnodeTree
from sparkraft.zookeeper.requests import GetChildren, GetData, Request
from sparkraft.zookeeper.znodes import tree as codecs

ROOTS = (
    "/admin",
    "/brokers",
    "/cluster",
    "/config",
    "/controller",
    "/controller_epoch",
    "/delegation_token",
    "/feature",
    "/isr_change_notification",
    "/kafka-acl",
    "/kafka-acl-changes",
    "/kafka-acl-extended",
    "/kafka-acl-extended-changes",
    "/latest_producer_id_block",
    "/log_dir_event_notification",
    "/migration",
)
"""Kafka's top-level znodes with data that it reads; others may belong to other programs."""


async def no_pause(units: int) -> None:
    """The `on_worked` of a process that serves nothing else."""
    _ = units


async def read_tree(
    client: ZooKeeperClient,
    roots: tuple[str, ...] = ROOTS,
    on_worked: Callable[[int], Awaitable[None]] = no_pause,
) -> ZnodeTree:
    """Read these znodes and all below them; those that vanish meanwhile are left out.

    Args:
        client: a session.
        roots: where to start.
        on_worked: awaited after each piece with the znodes read, to let other tasks run.

    Raises:
        ZooKeeperError: a znode could not be read.
    """
    tree = ZnodeTree()
    level = list(roots)
    while level:
        below: list[str] = []
        for piece in pieces(level):
            below += await _read_piece(client, piece, tree)
            await on_worked(len(piece))
        level = below
    return tree


async def _read_piece(client: ZooKeeperClient, paths: list[str], tree: ZnodeTree) -> list[str]:
    """Read znodes into `tree`; return the paths of their children."""
    requests: list[Request] = [GetChildren(path=path) for path in paths]
    requests += [GetData(path=path) for path in paths if codecs.has_codec(path)]
    results = await client.submit_all(requests)
    found = dict(zip(requests, results, strict=True))
    below: list[str] = []
    for path in paths:
        children = found[GetChildren(path=path)]
        data = found.get(GetData(path=path), (b"", None))
        if isinstance(children, NoNodeError) or isinstance(data, NoNodeError):
            continue  # absent, or deleted since its parent was read
        for result in (children, data):
            if isinstance(result, BaseException):
                raise result
        names, stat = children
        content, content_stat = data
        tree.add(path, content, (content_stat or stat).version)
        below += [f"{path}/{name}" for name in names]
    return below
