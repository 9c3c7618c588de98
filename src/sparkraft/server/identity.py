"""Reads a node's identity from its directories: cluster id, node id, directory ids (KIP-858).

Every directory of `log.dirs` and `metadata.log.dir` must be formatted for this node and for one
cluster; otherwise the node does not start. The directories are locked before, so that two nodes
never use one directory.
"""

from dataclasses import dataclass

from sparkraft.base.ids import Uuid
from sparkraft.server.config import NodeConfig
from sparkraft.storage.disk import Disk
from sparkraft.storage.meta_properties import BadMetaProperties, read_meta_properties


class StartRefused(Exception):  # noqa: N818 (a message for the operator)
    """The node cannot start; nothing was changed on disk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """The common contents of all `meta.properties`.

    Attributes:
        directory_ids: log dir → its id, for the usable ones.
    """

    cluster_id: str
    node_id: int
    directory_ids: dict[str, Uuid]


def read_identity(disk: Disk, config: NodeConfig) -> Identity:
    """The identity all directories agree on.

    Raises:
        StartRefused: a directory is missing, not formatted, or of another node or cluster, as in
            `KafkaRaftServer.initializeLogDirs`. Unreadable ones are skipped; they go offline later.
    """
    cluster_id: str | None = None
    found: dict[str, Uuid] = {}
    unformatted: list[str] = []
    for log_dir in dict.fromkeys((*config.log_dirs, config.metadata_log_dir)):
        try:
            meta = read_meta_properties(disk, log_dir)
        except BadMetaProperties as error:
            raise StartRefused(f"{log_dir}: {error}") from error
        except OSError:
            continue  # the log manager takes it offline and logs it
        if meta is None:
            unformatted.append(log_dir)
            continue
        if meta.node_id != config.node_id:
            raise StartRefused(
                f"{log_dir} belongs to node {meta.node_id}, but this is node {config.node_id}"
            )
        if cluster_id not in {None, meta.cluster_id}:
            raise StartRefused(
                f"{log_dir} belongs to cluster {meta.cluster_id}, another directory to {cluster_id}"
            )
        cluster_id = meta.cluster_id
        if meta.directory_id is not None:
            found[log_dir] = meta.directory_id
    if config.metadata_log_dir not in found and config.metadata_log_dir not in unformatted:
        raise StartRefused(
            f"{config.metadata_log_dir} cannot be read, or its meta.properties has no directory.id"
        )
    if cluster_id is None or unformatted:
        # A formatted directory may be missing or not mounted: its replicas would start empty.
        where = ", ".join(unformatted) or config.metadata_log_dir
        raise StartRefused(
            f"{where} is not formatted; run `sparkraft storage format` with a cluster id first"
        )
    return Identity(cluster_id=cluster_id, node_id=config.node_id, directory_ids=found)
