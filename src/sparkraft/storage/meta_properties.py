"""`meta.properties`: which cluster, node and directory a log directory belongs to (KIP-858).

::

    version=1
    cluster.id=...          22 characters
    node.id=1
    directory.id=...        22 characters; absent in directories of old brokers

Version 0, from ZooKeeper times, has `broker.id` and perhaps no cluster id.
"""

from dataclasses import dataclass

from sparkraft.base.ids import BrokerId, Uuid
from sparkraft.storage.disk import Disk
from sparkraft.storage.names import META_PROPERTIES


class BadMetaProperties(Exception):  # noqa: N818 (a sentence for the operator)
    """A `meta.properties` that can't be used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetaProperties:
    """The identity of a log directory."""

    cluster_id: str
    node_id: BrokerId
    directory_id: Uuid | None = None
    version: int = 1

    def format(self) -> bytes:
        """The file's bytes, without the date that Java writes, so that equal is equal."""
        node = "node.id" if self.version else "broker.id"
        lines = ["#", f"cluster.id={self.cluster_id}", f"{node}={self.node_id}"]
        if self.directory_id is not None:
            lines.insert(2, f"directory.id={self.directory_id}")
        lines.append(f"version={self.version}")
        return ("\n".join(lines) + "\n").encode("latin-1")

    @classmethod
    def parse(cls, data: bytes) -> "MetaProperties":
        """Read Java properties; raise `BadMetaProperties` that names what is missing."""
        fields = _properties(data.decode("latin-1"))
        try:
            version = int(fields.get("version", "0"))
            if version not in (0, 1):
                raise BadMetaProperties(f"version {version} of meta.properties is not known")
            node_id = BrokerId(int(fields["node.id" if version else "broker.id"]))
            directory = fields.get("directory.id")
            return cls(
                version=version,
                cluster_id=fields["cluster.id"] if version else fields.get("cluster.id", ""),
                node_id=node_id,
                directory_id=Uuid.parse(directory) if directory else None,
            )
        except KeyError as error:
            raise BadMetaProperties(f"meta.properties lacks {error.args[0]}") from error
        except ValueError as error:
            raise BadMetaProperties(f"meta.properties is damaged: {error}") from error


def _properties(text: str) -> dict[str, str]:
    fields = {}
    for raw in text.splitlines():
        row = raw.strip()
        if not row or row[0] in "#!":
            continue
        for separator in ("=", ":"):
            name, found, value = row.partition(separator)
            if found:
                fields[name.strip()] = value.strip().replace("\\", "")
                break
    return fields


def read_meta_properties(disk: Disk, log_dir: str) -> MetaProperties | None:
    """Return the directory's identity; None if it was never formatted."""
    try:
        return MetaProperties.parse(disk.read(f"{log_dir}/{META_PROPERTIES}"))
    except FileNotFoundError:
        return None


def write_meta_properties(disk: Disk, log_dir: str, meta: MetaProperties) -> None:
    """Put the identity in place, durably."""
    disk.mkdir(log_dir)
    disk.replace(f"{log_dir}/{META_PROPERTIES}", meta.format())
