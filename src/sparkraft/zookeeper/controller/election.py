"""Election and resignation of the controller (KafkaController.elect, maybeResign).

    /controller         ephemeral; its existence elects the session that created it
    /controller_epoch   a number; its version guards all writes of the elected controller

A candidate reads /controller_epoch. In one transaction it creates /controller and writes the next
epoch at the version it read. So of several candidates one wins, and its epoch is greater than all
before. A candidate whose reply was lost sends the transaction again and finds the znode: if
/controller names it and the epoch is the one it wrote, it has won (`checkControllerAndEpoch` in
KafkaZkClient).

The controller resigns when /controller names another node, when the check of a guarded write fails,
and after an error in its failover, which it ends by deleting /controller.
"""

from typing import NamedTuple

from sparkraft.zookeeper.controller import store, znodes
from sparkraft.zookeeper.controller.active import NO_CONTROLLER, Active
from sparkraft.zookeeper.controller.failover import fail_over
from sparkraft.zookeeper.controller.journal import STRANGER
from sparkraft.zookeeper.controller.steps import ControllerMovedError, Steps
from sparkraft.zookeeper.controller.znodes import Epoch, Registration
from sparkraft.zookeeper.errors import (
    BadVersionError,
    Code,
    MultiError,
    NodeExistsError,
    SessionExpiredError,
    ZooKeeperError,
)
from sparkraft.zookeeper.requests import Create, Delete, Exists, Multi, SetData
from sparkraft.zookeeper.znodes.json_form import ZnodeError

FIRST_EPOCH = 0
"""Data of a new /controller_epoch; the first controller has epoch 1."""


class Won(NamedTuple):
    """This node is the controller."""

    epoch: Epoch
    reply_was_lost: bool


class Lost(NamedTuple):
    """Another node is the controller, or none is and another attempt will follow.

    Attributes:
        reason: why.
        stranger: the broker in /controller if it is not registered; None: it is.
    """

    reason: str
    stranger: int | None = None


def compete(active: Active, now_ms: int) -> Steps[bool]:
    """Try to become the controller, and take over if elected; return whether this node is it.

    Args:
        active: not the controller.
        now_ms: wall clock, for the znode.
    """
    outcome = yield from elect(active, now_ms)
    if isinstance(outcome, Lost):
        active.journal.add("attempt", f"lost: {outcome.reason}")
        if outcome.stranger is not None:
            text = f"/controller names broker {outcome.stranger}, which is not registered"
            active.journal.add(STRANGER, f"{text}; no broker can be elected until it is deleted")
        return False
    text = f"won epoch {outcome.epoch.epoch}"
    active.journal.add("attempt", text + (", its reply was lost" if outcome.reply_was_lost else ""))
    try:
        yield from fail_over(active)
        active.has_taken_over = True
    except ControllerMovedError as error:
        yield from maybe_resign(active, str(error))
    except SessionExpiredError:
        raise
    except (ZooKeeperError, ZnodeError) as error:
        active.journal.add("failover", f"failed: {error}")
        yield from move_away(active, f"the failover failed: {error}")
    return active.is_active


def elect(active: Active, now_ms: int) -> Steps[Won | Lost]:
    """Try to create /controller; on success the context has the new epoch."""
    present = yield from store.read_controller()
    active.controller_id = NO_CONTROLLER if present is None else present.broker
    if present is not None:
        is_known = present.is_kraft or (yield from store.is_registered(present.broker))
        stranger = None if is_known else present.broker
        return Lost(f"broker {present.broker} is the controller", stranger)
    before = yield from _read_or_create_epoch()
    outcome = yield from _register(active.settings.node_id, before, now_ms)
    if isinstance(outcome, Won):
        active.controller_id = active.settings.node_id
        active.context.epoch, active.context.epoch_version = outcome.epoch
    return outcome


def _read_or_create_epoch() -> Steps[Epoch]:
    found = yield from store.read_epoch()
    if found is not None:
        return found
    create = Create(path=znodes.CONTROLLER_EPOCH, data=znodes.encode_epoch(FIRST_EPOCH))
    (result,) = yield from store.read([create])
    if not isinstance(result, ZooKeeperError):
        return Epoch(FIRST_EPOCH, 0)
    if not isinstance(result, NodeExistsError):
        raise result
    found = yield from store.read_epoch()
    if found is None:
        raise result
    return found


def _register(node_id: int, before: Epoch, now_ms: int) -> Steps[Won | Lost]:
    epoch = before.epoch + 1
    data = znodes.encode_controller(node_id, now_ms)
    create = Create(path=znodes.CONTROLLER, data=data, ephemeral=True)
    bump = SetData(
        path=znodes.CONTROLLER_EPOCH, data=znodes.encode_epoch(epoch), version=before.version
    )
    (result,) = yield from store.read([Multi((create, bump))])
    if not isinstance(result, ZooKeeperError):
        return Won(Epoch(epoch, result[1].version), reply_was_lost=False)
    refused = isinstance(result, NodeExistsError | BadVersionError) or (
        isinstance(result, MultiError) and result.code in (Code.NODE_EXISTS, Code.BAD_VERSION)
    )
    if not refused:
        raise result
    return (yield from _check_own_registration(node_id, epoch))


def _check_own_registration(node_id: int, epoch: int) -> Steps[Won | Lost]:
    """Find out whether the refused transaction repeated one that was applied."""
    present = yield from store.read_controller()
    if present is None:
        return Lost("the controller that won has resigned")
    found = yield from store.read_epoch()
    if present.broker == node_id and found is not None and found.epoch == epoch:
        return Won(found, reply_was_lost=True)
    return Lost(f"broker {present.broker} was faster")


def maybe_resign(active: Active, reason: str) -> Steps[None]:
    """Read /controller, with a watch; resign if it names another node than this one.

    The watch is set before the read, so no change is missed.
    """
    was_active = active.is_active
    yield from store.read([Exists(path=znodes.CONTROLLER, watch=True)])
    present = yield from store.read_controller()
    active.controller_id = NO_CONTROLLER if present is None else present.broker
    if was_active and not active.is_active:
        resign(active, reason)


def resign(active: Active, reason: str) -> None:
    """Forget the cluster: nothing may be written or sent any more with the old epoch."""
    active.journal.add("resignation", f"epoch {active.context.epoch}: {reason}")
    active.reset()


def move_away(active: Active, reason: str) -> Steps[None]:
    """Resign and delete /controller, so that all nodes compete (triggerControllerMove)."""
    present = yield from store.read_controller()
    active.controller_id = NO_CONTROLLER if present is None else present.broker
    if not active.is_active:
        return
    version = active.context.epoch_version
    active.controller_id = NO_CONTROLLER
    resign(active, reason)
    try:
        yield from store.write([Delete(path=znodes.CONTROLLER)], version)
    except ControllerMovedError:
        active.journal.add("resignation", "another controller was elected already")


def depose() -> Steps[Registration | None]:
    """Delete /controller of the present controller, for an operator; return whose it was.

    The deletion is guarded by the epoch: a controller elected in the meantime stays.

    Raises:
        ControllerMovedError: another controller was elected.
    """
    epoch = yield from store.read_epoch()
    present = yield from store.read_controller()
    if epoch is None or present is None or present.is_kraft:
        return present
    (result,) = yield from store.write([Delete(path=znodes.CONTROLLER)], epoch.version)
    if isinstance(result, ZooKeeperError):
        raise result
    return present
