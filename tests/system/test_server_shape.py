"""The shape of `sparkraft.server`: parts get what they need, and change only themselves.

Nothing in `server` sets an attribute of another object or looks one up by a computed name, because
neither can be found by reading or searching the class. Messages are filled in where they are made:
by API handlers, which set fields of messages only, and by the few functions listed here. The list
may only shrink.
"""

import ast
import pkgutil
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

from sparkraft.protocol import messages
from sparkraft.protocol.declare import Message

SERVER = Path(__file__).parents[2] / "src" / "sparkraft" / "server"

FILLED_MESSAGES = {
    "network/quota_meter.py": {"response.throttle_time_ms"},
    "broker/fetchers.py": {"request.max_wait_ms", "request.min_bytes", "request.max_bytes"},
    "broker/follower_client.py": {"request.replica_state", "request.replica_id"},
    "controller/submission.py": {
        "response.throttle_time_ms",
        "result.error_code",
        "result.error_message",
    },
    "limits.py": {"self._info.restype"},  # the type of a C function
    "raft/wire.py": {
        "partition.current_leader",
        "partition.diverging_epoch",
        "partition.snapshot_id",
    },
    "zookeeper/old_forms.py": {
        "broker.endpoints",
        "endpoint.listener",
        "request.topic_states",
        "request.ungrouped_partition_states",
    },
    "zookeeper/topic_changes.py": {"each.topic_id", "result.topic_id"},
    "zookeeper/znode_requests.py": {"each.new_isr", "each.new_isr_with_epochs"},
}
"""File → targets that are fields of a wire message, or of a library's object."""

SHARED = {"broker", "node", "services", "context", "controller", "connection", "session", "past"}
"""How API handlers call what outlives a request; they set nothing of it."""


@cache
def message_fields() -> set[str]:
    """The names of all fields of wire messages, which API handlers fill in."""
    for module in pkgutil.iter_modules(messages.__path__, f"{messages.__name__}."):
        import_module(module.name)
    found, classes = set(), [Message]
    while classes:
        classes += (kind := classes.pop()).__subclasses__()
        found |= set(kind.SCHEMA.names) if "SCHEMA" in vars(kind) else set()
    return found


def targets(tree: ast.AST) -> Iterator[ast.Attribute]:
    """Every attribute that is assigned to."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del):
            yield node


def root(attribute: ast.Attribute) -> str:
    value: ast.expr = attribute
    while isinstance(value, ast.Attribute | ast.Subscript):
        value = value.value
    return ast.unparse(value)


def foreign_targets(path: Path) -> set[str]:
    """Attributes of other objects that a module sets."""
    in_api = path.parent.name == "api"
    found = set()
    for target in targets(ast.parse(path.read_text())):
        own = ast.unparse(target.value) in {"self", "cls"}
        fills_message = in_api and target.attr in message_fields()
        if not own and (not fills_message or root(target) in SHARED | {"self"}):
            found.add(ast.unparse(target))
    return found


def computed_lookups(path: Path) -> list[str]:
    return [
        ast.unparse(node)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in {"getattr", "setattr", "delattr"}
        and not isinstance(node.args[1], ast.Constant)
    ]


PATHS = {str(path.relative_to(SERVER)): path for path in sorted(SERVER.rglob("*.py"))}


@pytest.mark.parametrize("name", PATHS)
def test_no_attribute_of_another_object_is_set(name: str) -> None:
    allowed = FILLED_MESSAGES.get(name, set())
    assert foreign_targets(PATHS[name]) <= allowed, "give the object a method instead"


@pytest.mark.parametrize("name", PATHS)
def test_no_attribute_is_looked_up_by_a_computed_name(name: str) -> None:
    assert computed_lookups(PATHS[name]) == []


def test_only_handlers_and_the_assembly_know_all_services_of_a_broker() -> None:
    """Each part of a broker takes what it uses."""
    importers = {
        name for name, path in PATHS.items() if "server.broker_services import" in path.read_text()
    }
    others = {name for name in importers if not name.startswith("api/")}
    assert others == {"broker_assembly.py", "node.py"}


def test_the_list_of_filled_messages_has_no_stale_entry() -> None:
    for name, allowed in FILLED_MESSAGES.items():
        assert allowed <= foreign_targets(PATHS[name]), name
