"""Who this node is, as its directories say: cluster id, node id, directory ids (KIP-858).

Every directory of `log.dirs` and `metadata.log.dir` must be formatted, for this node and for one
cluster; a foreign or unformatted one stops the start with a sentence. Locks are taken first, so
that two nodes never look at one directory.
"""

from dataclasses import dataclass

from sparkraft.base.ids import Uuid
from sparkraft.server.config import NodeConfig
from sparkraft.storage.disk import Disk
from sparkraft.storage.meta_properties import BadMetaProperties, read_meta_properties


class StartRefused(Exception):  # noqa: N818 (a plain sentence for the person who starts the node)
    """The node can't start here; nothing was changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What `meta.properties` of all directories agree on.

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
            `KafkaRaftServer.initializeLogDirs`. One that can't be read is left to go offline.
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
            continue  # The log manager takes it offline and says so.
        if meta is None:
            unformatted.append(log_dir)
            continue
        if meta.node_id != config.node_id:
            raise StartRefused(
                f"{log_dir} belongs to node {meta.node_id}, and this is node {config.node_id}"
            )
        if cluster_id not in {None, meta.cluster_id}:
            raise StartRefused(
                f"{log_dir} belongs to cluster {meta.cluster_id}, another one to {cluster_id}"
            )
        cluster_id = meta.cluster_id
        if meta.directory_id is not None:
            found[log_dir] = meta.directory_id
    if config.metadata_log_dir not in found and config.metadata_log_dir not in unformatted:
        raise StartRefused(
            f"{config.metadata_log_dir} can't be read, or its meta.properties has no directory.id"
        )
    if cluster_id is None or unformatted:
        # One that was formatted may be gone, or not mounted: its replicas would come back empty.
        where = ", ".join(unformatted) or config.metadata_log_dir
        raise StartRefused(
            f"{where} is not formatted; run `sparkraft storage format` with a cluster id first"
        )
    return Identity(cluster_id=cluster_id, node_id=config.node_id, directory_ids=found)
