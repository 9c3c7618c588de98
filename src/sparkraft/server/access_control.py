"""The authorizer of a node, by its configs, with the entries of the metadata log.

    raft commits → MetadataPublisher.image → `AclPublisher` → StandardAuthorizer

Brokers and controllers decide on the entries that this node has replayed, so a change has effect on
each node when it reaches it, as in Kafka. Controller listeners serve before the entries are loaded;
until then only super users pass. Broker listeners open later, when the broker has caught up.
"""

import logging
from typing import TYPE_CHECKING

from sparkraft.base.loop_work import LoopBound
from sparkraft.protocol.messages.metadata_records import (
    AccessControlEntryRecord,
    RemoveAccessControlEntryRecord,
)
from sparkraft.security.acl_index import AclIndex
from sparkraft.security.authorizer import AllowAll, Authorizer
from sparkraft.security.principal import ANONYMOUS, USER, KafkaPrincipal
from sparkraft.security.protocols import SecurityProtocol
from sparkraft.security.standard_authorizer import (
    ALLOW_IF_NO_ACL,
    SUPER_USERS,
    StandardAuthorizer,
    parse_super_users,
)
from sparkraft.server.config import ConfigError
from sparkraft.server.sasl_config import controller_login, inter_broker_login, node_user

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from immutables import Map

    from sparkraft.base.ids import BrokerId, LeaderEpoch, Offset, Uuid
    from sparkraft.metadata.image import ClusterImage
    from sparkraft.security.acls import Acl
    from sparkraft.server.broker.metadata_publisher import MetadataPublisher
    from sparkraft.server.config import NodeConfig
    from sparkraft.server.raft.driver import RaftDriver
    from sparkraft.server.raft.metadata_log_listener import CommittedBatch

log = logging.getLogger(__name__)

ENTRIES_PER_ITERATION: LoopBound = 1_000
"""Entries of a snapshot indexed in one event-loop iteration: a few milliseconds."""


def authorizer_of(config: "NodeConfig") -> Authorizer:
    """The authorizer that the configs select.

    Raises:
        ConfigError: the controllers could not elect a leader.
    """
    if not config.has_authorizer:
        return AllowAll()
    try:
        super_users = parse_super_users(config.properties.get(SUPER_USERS, ""))
    except ValueError as error:
        raise ConfigError(str(error)) from error
    _check_node_principals(config, super_users)
    allows = config.properties.get(ALLOW_IF_NO_ACL, "").strip().lower() == "true"
    return StandardAuthorizer(super_users, allow_everyone_if_no_acl=allows)


def check_voters(config: "NodeConfig", authorizer: Authorizer, voters: int) -> None:
    """Check that the `voters` of the metadata log can elect a leader.

    The configs of a dynamic quorum may name fewer controllers than it has voters.

    Raises:
        ConfigError: controllers would refuse each other's requests for votes.
    """
    if voters > 1 and isinstance(authorizer, StandardAuthorizer):
        for listener, principal in _ordinary_principals(config, authorizer.super_users).items():
            _check_listener(config, listener, principal)


def _check_node_principals(config: "NodeConfig", super_users: frozenset[str]) -> None:
    """Check that nodes authorize each other, also before they have loaded the entries.

    Raises:
        ConfigError: controllers would refuse each other's requests for votes.
    """
    voters = config.words("controller.quorum.voters")
    controllers = voters or config.words("controller.quorum.bootstrap.servers")
    for listener, principal in _ordinary_principals(config, super_users).items():
        if len(controllers) > 1:
            _check_listener(config, listener, principal)
        log.warning(
            "%s is not in super.users: other nodes, which connect to listener %s with that "
            "principal, need CLUSTER_ACTION on the cluster, and are refused until access control "
            "lists are loaded",
            principal,
            listener,
        )


def _check_listener(config: "NodeConfig", listener: str, principal: KafkaPrincipal) -> None:
    if listener in config.controller_listener_names:
        raise ConfigError(
            f"super.users must contain {principal}, as which nodes connect to listener "
            f"{listener}: controllers can't elect a leader otherwise, since access control "
            "lists are loaded after an election"
        )


def _ordinary_principals(
    config: "NodeConfig", super_users: frozenset[str]
) -> dict[str, KafkaPrincipal]:
    """The principals of nodes that are not super users."""
    return {
        listener: principal
        for listener, principal in _node_principals(config).items()
        if str(principal) not in super_users
    }


def _node_principals(config: "NodeConfig") -> dict[str, KafkaPrincipal]:
    """Listener → the principal of nodes that connect to it, if the configuration defines it."""
    found = {
        name: ANONYMOUS
        for name in config.controller_listener_names
        if config.security_protocols.get(name.upper()) == SecurityProtocol.PLAINTEXT.name
    }
    login = None if config.is_zookeeper else controller_login(config)
    if login is not None:
        name = config.controller_listener_names[0]
        if (user := node_user(config, name, login)) is not None:
            found[name] = KafkaPrincipal(USER, user)
    if config.is_broker:
        name = config.inter_broker_listener_name
        login = inter_broker_login(config)
        if login is not None:
            if (user := node_user(config, name, login)) is not None:
                found[name] = KafkaPrincipal(USER, user)
        elif config.security_protocols.get(name) == SecurityProtocol.PLAINTEXT.name:
            found[name] = ANONYMOUS
    return found


def publish_acls(
    raft: "RaftDriver", authorizer: Authorizer, publisher: "MetadataPublisher"
) -> None:
    """Let `authorizer` follow the metadata log, after `publisher`, which is registered already."""
    if isinstance(authorizer, StandardAuthorizer):
        raft.register(AclPublisher(authorizer, lambda: publisher.image))


class AclPublisher:
    """A listener of the metadata log that keeps an authorizer's entries equal to the image's.

    It must be registered after the `MetadataPublisher`, whose image it reads.
    """

    def __init__(self, authorizer: StandardAuthorizer, image: "Callable[[], ClusterImage]") -> None:
        self._authorizer = authorizer
        self._image = image
        self._acls: Map[Uuid, Acl] = image().acls
        self._changed: set[Uuid] = set()
        self._prepared: tuple[Map[Uuid, Acl], AclIndex] | None = None

    def on_commit(self, batch: "CommittedBatch") -> None:
        """Apply the image's changes; records of a metadata transaction are in it when it ends."""
        for record in batch.records:
            if type(record) in (AccessControlEntryRecord, RemoveAccessControlEntryRecord):
                self._changed.add(record.id)
        before, acls = self._acls, self._image().acls
        if acls is before:
            return
        changed, self._changed, self._acls = self._changed, set(), acls
        self._authorizer.change(
            removed=[before[id_] for id_ in changed if id_ in before],
            added=[acls[id_] for id_ in changed if id_ in acls],
        )

    def prepare_snapshot(self, image: "ClusterImage") -> "Iterator[None]":
        """Index the entries of a snapshot."""
        index = AclIndex()
        for count, acl in enumerate(image.acls.values(), 1):
            index.add(acl)
            if not count % ENTRIES_PER_ITERATION:
                yield
        self._prepared = image.acls, index

    def on_snapshot(self, image: "ClusterImage") -> None:
        """Replace the entries."""
        del image  # the publisher has it already
        self._acls, self._changed = self._image().acls, set()
        prepared, self._prepared = self._prepared, None
        if prepared is not None and prepared[0] is self._acls:
            self._authorizer.take(prepared[1])
        else:
            self._authorizer.load(self._acls.values())

    def on_leader_change(self, leader_id: "BrokerId | None", epoch: "LeaderEpoch") -> None:
        """Do nothing: a new leader changes no entries."""

    def on_high_watermark(self, high_watermark: "Offset") -> None:
        """Complete the load: every entry that was committed at the start is known."""
        del high_watermark
        if not self._authorizer.is_loaded:
            self._authorizer.complete_load()
            log.info("Loaded %d access control entries", len(self._acls))
