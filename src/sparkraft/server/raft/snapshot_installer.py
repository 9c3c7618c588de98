"""Receives a snapshot from the leader and starts the log at it (KIP-630).

Chunks go to a file as they arrive. After the last one the file is verified and brought to disk off
the event loop, then replaces the log. A damaged snapshot is discarded and fetched again.
"""

import logging
from typing import TYPE_CHECKING

from sparkraft.base.errors import DecodeError
from sparkraft.raft import events
from sparkraft.server.raft import records as log_records

if TYPE_CHECKING:
    from sparkraft.base.env import FaultPoint
    from sparkraft.server.raft.commit_publisher import CommitPublisher
    from sparkraft.server.raft.core_host import CoreHost
    from sparkraft.storage.raft_log import RaftLog
    from sparkraft.storage.snapshot_files import SnapshotFile

log = logging.getLogger("sparkraft.raft")


class SnapshotInstaller:
    """Carries out `WriteSnapshotChunk` and `InstallSnapshot`; at most one snapshot at a time."""

    def __init__(
        self,
        raft_log: "RaftLog",
        fault_point: "FaultPoint",
        host: "CoreHost",
        commits: "CommitPublisher",
    ) -> None:
        self._log = raft_log
        self._fault_point = fault_point
        self._host = host
        self._commits = commits
        self._file: SnapshotFile | None = None

    def write_chunk(
        self, snapshot: events.EpochAndOffset, position: int, chunk: bytes | memoryview
    ) -> None:
        """Append a chunk; position 0 discards an earlier partial file."""
        if position == 0 or self._file is None:
            self._file = self._log.new_snapshot(log_records.file_id(snapshot))
        assert self._file is not None
        self._file.append(chunk)
        self._fault_point("between_snapshot_chunks")

    async def install(self) -> None:
        """Verify the complete file, bring it to disk, and start the log at it."""
        file, self._file = self._file, None
        assert file is not None
        try:
            content = await self._host.in_executor(file.verify)
            level, voters = log_records.read_snapshot_controls(content)
            await self._host.in_executor(file.freeze)
            self._fault_point("snapshot_fetched_before_install")
            self._replace_log(file)
        except DecodeError as error:
            log.warning(
                "snapshot %s from the leader is damaged; fetching it again: %s", file.id, error
            )
            file.discard()
            self._host.step(events.SnapshotDiscarded())
            return
        except Exception as error:
            self._host.fail(error)
            return
        log.info("loaded snapshot %s of %d bytes from the leader", file.id, file.size)
        installed = events.SnapshotInstalled(
            snapshot=log_records.core_id(file.id),
            size=file.size,
            kraft_version=level,
            voters=voters,
        )
        self._host.step(installed)

    def _replace_log(self, file: "SnapshotFile") -> None:
        self._commits.forget()
        self._log.install_snapshot(file.id, file.size)
        self._fault_point("snapshot_installed_before_told")
