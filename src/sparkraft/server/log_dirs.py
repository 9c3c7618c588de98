"""Opens a node's log directories at the start and closes them at the end."""

import logging
from typing import TYPE_CHECKING

from sparkraft.server.identity import read_identity
from sparkraft.server.loading import load_options
from sparkraft.storage.config import LogConfig
from sparkraft.storage.log_manager import LogManager

if TYPE_CHECKING:
    from sparkraft.server.config import NodeConfig
    from sparkraft.server.env import Env
    from sparkraft.server.identity import Identity
    from sparkraft.storage.disk import StorageFault

log = logging.getLogger(__name__)


def lock_log_dirs(config: "NodeConfig", env: "Env") -> LogManager:
    """Lock the directories of this node; its logs are not loaded yet.

    Raises:
        DirectoryLocked: another process has one.
    """
    base = LogConfig(
        record_validation=config.text("sparkraft.record.validation"),
        producer_id_expiration_ms=config.number("producer.id.expiration.ms"),
        producer_ids_max=config.number("sparkraft.partition.producer.ids.max"),
    )
    directories = config.log_dirs if config.is_broker else (config.metadata_log_dir,)
    if config.metadata_log_dir not in directories:
        directories = (*directories, config.metadata_log_dir)
    manager = LogManager(env.disk, directories, base, clock=env.clock, entropy=env.entropy)
    manager.lock()
    return manager


def load_logs(manager: LogManager, config: "NodeConfig", env: "Env") -> "Identity":
    """Read the node's identity, then load and recover its logs.

    Raises:
        StartRefused: the directories are not this node's.
    """
    identity = read_identity(env.disk, config)
    recover_logs(manager, config, env)
    return identity


def recover_logs(manager: LogManager, config: "NodeConfig", env: "Env") -> None:
    """Load and recover the logs in directories that are known to be this node's."""
    manager.set_default_config(manager.log_config(config.topic_defaults))
    manager.load(options=load_options(config, env))
    for fault in manager.damaged.values():
        log.error("A replica is damaged and will not be served: %s", fault)
    for directory in manager.offline_directories:
        log.error("A log directory is offline: %s", directory.fault)


def close_log_dirs(
    manager: LogManager, env: "Env", *, clean: bool, broker_epoch: int
) -> "StorageFault | None":
    """Write checkpoints, close and unlock; returns the first failure.

    Args:
        manager: of the directories.
        env: for its threads.
        clean: whether the node stops without a failure.
        broker_epoch: for `.kafka_cleanshutdown`; -1 if there is none.
    """
    offline = {directory.path for directory in manager.offline_directories}
    manager.close(clean=clean, broker_epoch=broker_epoch, run_all=env.run_all_and_wait)
    failure = None
    for directory in manager.offline_directories:
        if directory.path not in offline:
            log.error(
                "A log directory failed during shutdown; the next start recovers it: %s",
                directory.fault,
            )
            failure = failure or directory.fault
    return failure
