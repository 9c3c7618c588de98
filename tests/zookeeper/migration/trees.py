"""Trees of znodes: a recorded one, and changes of it."""

from pathlib import Path

from sparkraft.zookeeper.migration.tree import ZnodeTree

LINES = Path(__file__).with_name("recorded_tree.txt").read_text().splitlines()[1:]

SECURED = ("/kafka-acl", "/delegation_token")
"""Znodes below these are refused."""


def tree_of(
    changes: dict[str, str | None] | None = None, *, without: tuple[str, ...] = ()
) -> ZnodeTree:
    """The recorded znodes; changed ones with other data (None: absent), some without all below."""
    left = dict(changes or {})
    tree = ZnodeTree()
    for line in LINES:
        path, version, *data = line.split(" ", 2)
        if path.startswith(without) or left.get(path, "") is None:
            continue
        text = left.pop(path, None) or "".join(data)
        tree.add(path, text.encode(), int(version))
    for path, text in left.items():
        if text is not None:
            tree.add(path, text.encode(), 0)
    return tree
