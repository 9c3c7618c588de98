"""The metadata log's recovery point reaches the disk with the first commit, then by the clock."""

from types import SimpleNamespace

from sparkraft.server.metadata_checkpoint import INTERVAL_MS, MetadataRecoveryPoint
from sparkraft.storage.disk import StorageFault
from sparkraft.storage.log_dir import LogDir
from sparkraft.storage.names import METADATA_TOPIC


class Logs:
    def __init__(self):
        self.place = LogDir(path="/logs")
        self.written = []
        self.fails = False

    def directory(self, path):
        assert path == "/logs"
        return self.place

    def checkpoint_recovery_points(self, path):
        if self.fails:
            raise StorageFault(path, "checkpoint", "broken")
        self.written.append(self.place.metadata_recovery_point())
        self.place.recovery_points = {(METADATA_TOPIC, 0): self.written[-1]}


def test_the_first_commit_is_written_at_once_and_later_ones_now_and_then():
    logs, faults = Logs(), []
    now = [0]
    clock = SimpleNamespace(mono_ms=lambda: now[0])
    point = MetadataRecoveryPoint(logs, "/logs", clock, faults.append)
    point.on_high_watermark(0)
    assert logs.written == []
    logs.place.metadata_recovery_point = lambda: 3
    point.on_high_watermark(3)
    assert logs.written == [3]
    logs.place.metadata_recovery_point = lambda: 9
    point.on_high_watermark(9)
    now[0] = INTERVAL_MS
    point.on_high_watermark(9)
    assert logs.written == [3, 9]
    now[0] *= 2
    point.on_high_watermark(9)
    assert logs.written == [3, 9], "nothing new"
    logs.place.metadata_recovery_point = lambda: 10
    logs.fails = True
    point.on_high_watermark(10)
    assert [fault.operation for fault in faults] == ["checkpoint"]
