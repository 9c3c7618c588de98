"""The identity of a broker in ZooKeeper mode: `meta.properties` of version 0.

    broker.id=1, cluster.id=…, version=0

The file is not a sign of a formatted directory: a new directory gets it at the start. A broker that
is being migrated to KRaft (KIP-866) gives each directory an id; the version stays 0. Kafka 3.9:
`KafkaServer.startup`, `MetaPropertiesEnsemble.verify` with REQUIRE_V0, `getOrGenerateBrokerId`.
"""

from typing import TYPE_CHECKING

from sparkraft.base.ids import BrokerId
from sparkraft.server.config import ConfigError
from sparkraft.server.identity import Identity, StartRefused
from sparkraft.server.zookeeper_config import BROKER_ID_GENERATION, RESERVED_BROKER_ID_MAX
from sparkraft.storage.meta_properties import (
    BadMetaProperties,
    MetaProperties,
    read_meta_properties,
    write_meta_properties,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sparkraft.base.ids import Uuid
    from sparkraft.server.config import NodeConfig
    from sparkraft.storage.disk import Disk


def check_broker_id(config: "NodeConfig") -> None:
    """Check that `broker.id` cannot be one that a broker generates.

    Kafka 3.9: `KafkaConfig.validateValues`. Brokers that generate their ids get those above
    reserved.broker.max.id.

    Raises:
        ConfigError: it can, or there is neither an id nor a generated one.
    """
    if not config.flag(BROKER_ID_GENERATION):
        if config.node_id < 0:
            raise ConfigError(
                f"broker.id is missing, and {BROKER_ID_GENERATION}=false: set broker.id to a "
                "number unique in the cluster"
            )
        return
    reserved_max = config.number(RESERVED_BROKER_ID_MAX)
    if config.node_id > reserved_max:
        raise ConfigError(
            f"broker.id={config.node_id} is greater than {RESERVED_BROKER_ID_MAX}={reserved_max}, "
            f"and may be generated for another broker: choose a lower one, raise "
            f"{RESERVED_BROKER_ID_MAX}, or set {BROKER_ID_GENERATION}=false"
        )


def read_directories(disk: "Disk", config: "NodeConfig") -> "dict[str, MetaProperties | None]":
    """Read `meta.properties` of each log directory that can be read; None without one.

    Raises:
        StartRefused: one is malformed, or of KRaft mode unless the broker is being migrated to it.
    """
    found: dict[str, MetaProperties | None] = {}
    for log_dir in dict.fromkeys((*config.log_dirs, config.metadata_log_dir)):
        try:
            meta = read_meta_properties(disk, log_dir)
        except BadMetaProperties as error:
            raise StartRefused(f"{log_dir}: {error}") from error
        except OSError:
            continue  # the log manager takes it offline and logs it
        if meta is not None and meta.version != 0 and not config.is_migrating_broker:
            raise StartRefused(
                f"{log_dir} has a meta.properties of version {meta.version}, which is of KRaft "
                "mode; ZooKeeper mode needs version 0"
            )
        found[log_dir] = meta
    return found


def known_broker_id(
    directories: "Mapping[str, MetaProperties | None]", *, cluster_id: str, configured: int
) -> int:
    """The broker id of `broker.id` or, if that is -1, of the directories; -1 if none has one.

    Raises:
        StartRefused: a directory is of another cluster or broker.
    """
    broker_id = configured
    for log_dir, meta in directories.items():
        if meta is None:
            continue
        if meta.cluster_id and meta.cluster_id != cluster_id:
            raise StartRefused(
                f"{log_dir} belongs to cluster {meta.cluster_id}, but the cluster id in ZooKeeper "
                f"is {cluster_id}"
            )
        if broker_id not in {-1, meta.node_id}:
            raise StartRefused(
                f"{log_dir} belongs to broker {meta.node_id}, but this is broker {broker_id}"
            )
        broker_id = meta.node_id
    return broker_id


def complete_directories(
    disk: "Disk",
    directories: "Mapping[str, MetaProperties | None]",
    *,
    cluster_id: str,
    broker_id: int,
    new_directory_id: "Callable[[], Uuid] | None" = None,
) -> Identity:
    """Write the files that are missing, or lack something; returns the identity.

    Args:
        disk: with the directories.
        directories: as they were read.
        cluster_id: in ZooKeeper.
        broker_id: of this broker.
        new_directory_id: makes the id of a directory without one; None: it stays without.

    Raises:
        OSError: a directory cannot be written.
    """
    ids = {}
    for log_dir, meta in directories.items():
        directory_id = None if meta is None else meta.directory_id
        if directory_id is None and new_directory_id is not None:
            directory_id = new_directory_id()
        wanted = MetaProperties(
            cluster_id=cluster_id,
            node_id=BrokerId(broker_id),
            directory_id=directory_id,
            version=0 if meta is None else meta.version,
        )
        if meta != wanted:
            write_meta_properties(disk, log_dir, wanted)
        if directory_id is not None:
            ids[log_dir] = directory_id
    return Identity(cluster_id=cluster_id, node_id=broker_id, directory_ids=ids)
