r"""The small text files: offset checkpoints, leader epochs, `partition.metadata`, clean shutdown.

An offset checkpoint holds one line a partition, a leader-epoch checkpoint one line an epoch::

    0                       version
    2                       number of lines that follow
    flights 0 336776        topic, partition, offset        |  epoch, start offset
    delays 3 12

`partition.metadata` is ``version: 0\ntopic_id: <Uuid>`` and `.kafka_cleanshutdown` the JSON
``{"version":0,"brokerEpoch":42}``. Each is replaced as a whole, so it is old or new after a crash.
"""

import json

from sparkraft.base.ids import TopicPartition, Uuid
from sparkraft.storage.disk import Disk

_LINES_MAX = 1 << 24  # far above any node's partitions; a damaged count ends here
_OFFSET_FIELDS = 3
_EPOCH_FIELDS = 2


class DamagedCheckpoint(Exception):  # noqa: N818 (it reports; callers decide)
    """A checkpoint file that can't be read; the caller does without it."""


def _lines(data: bytes) -> list[list[str]]:
    try:
        rows = data.decode().split("\n")
        version, count = int(rows[0]), int(rows[1])
    except (UnicodeDecodeError, ValueError, IndexError) as error:
        raise DamagedCheckpoint(f"no version and count: {error}") from error
    if version != 0:
        raise DamagedCheckpoint(f"version {version} is not known")
    if not 0 <= count <= _LINES_MAX or len(rows) < count + 2:
        raise DamagedCheckpoint(f"{count} lines are promised, {len(rows) - 2} are there")
    if any(row.strip() for row in rows[count + 2 :]):
        raise DamagedCheckpoint(f"there is more than the {count} lines promised")
    return [row.split() for row in rows[2 : count + 2]]


def _text(lines: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in ["0", str(len(lines)), *lines]).encode()


def parse_offsets(data: bytes) -> dict[TopicPartition, int]:
    """Offsets by partition; `DamagedCheckpoint` if the text is not one."""
    offsets: dict[TopicPartition, int] = {}
    for fields in _lines(data):
        if len(fields) != _OFFSET_FIELDS:
            raise DamagedCheckpoint(f"a line with {len(fields)} fields")
        try:
            offsets[fields[0], int(fields[1])] = int(fields[2])
        except ValueError as error:
            raise DamagedCheckpoint(str(error)) from error
    return offsets


def format_offsets(offsets: dict[TopicPartition, int]) -> bytes:
    """The file's bytes, sorted so that equal contents are equal bytes."""
    return _text([f"{topic} {part} {offsets[topic, part]}" for topic, part in sorted(offsets)])


def parse_epochs(data: bytes) -> list[tuple[int, int]]:
    """(epoch, start offset) in file order; `DamagedCheckpoint` if the text is not one."""
    epochs = []
    for fields in _lines(data):
        if len(fields) != _EPOCH_FIELDS:
            raise DamagedCheckpoint(f"a line with {len(fields)} fields")
        try:
            epochs.append((int(fields[0]), int(fields[1])))
        except ValueError as error:
            raise DamagedCheckpoint(str(error)) from error
    return epochs


def format_epochs(epochs: list[tuple[int, int]]) -> bytes:
    """The file's bytes."""
    return _text([f"{epoch} {start}" for epoch, start in epochs])


def read_offsets(disk: Disk, path: str) -> dict[TopicPartition, int]:
    """The checkpoint at `path`; empty if it is missing or damaged."""
    try:
        return parse_offsets(disk.read(path))
    except (FileNotFoundError, DamagedCheckpoint):
        return {}


def parse_partition_metadata(data: bytes) -> Uuid:
    """The topic id of a partition's directory; `DamagedCheckpoint` if there is none."""
    fields = {}
    for row in data.decode("utf-8", "replace").splitlines():
        name, colon, value = row.partition(":")
        if colon:
            fields[name.strip()] = value.strip()
    try:
        if int(fields["version"]) < 0:
            raise DamagedCheckpoint("a negative version")
        return Uuid.parse(fields["topic_id"])
    except (KeyError, ValueError) as error:
        raise DamagedCheckpoint(f"no topic id: {error}") from error


def format_partition_metadata(topic_id: Uuid) -> bytes:
    """The file's bytes."""
    return f"version: 0\ntopic_id: {topic_id}".encode()


def parse_clean_shutdown(data: bytes) -> int:
    """The broker epoch of the run that stopped cleanly, -1 if unknown."""
    try:
        epoch = json.loads(data)["brokerEpoch"]
    except (ValueError, KeyError, TypeError):
        return -1
    return epoch if isinstance(epoch, int) else -1


def format_clean_shutdown(broker_epoch: int) -> bytes:
    """The file's bytes."""
    return f'{{"version":0,"brokerEpoch":{broker_epoch}}}'.encode()
