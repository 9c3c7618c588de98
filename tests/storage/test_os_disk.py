"""The machine's disk: bounded open files, locks between processes, short writes, threads."""

import errno
import os
import resource
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Event, Thread

import pytest

from sparkraft.storage import disk as disk_module
from sparkraft.storage import mapped as mapped_module
from sparkraft.storage.disk import FileLimitTooLow, OsDisk, raise_file_limit
from sparkraft.storage.log_manager import LogManager
from sparkraft.storage.mapped import VIEW_BYTES_MIN, WINDOW_BYTES, MappedFiles
from sparkraft.storage.names import METADATA_DIR
from tests.storage.worlds import SMALL, HandClock, SeededDice, append, contents


@pytest.fixture
def disk():
    made = OsDisk(open_files_max=8)
    yield made
    made.close()


def test_open_files_stay_within_their_bound(disk, tmp_path):
    for index in range(50):
        disk.append(f"{tmp_path}/{index}", [b"%d" % index])
    assert disk.open_files == 8
    for index in range(50):
        assert disk.pread(f"{tmp_path}/{index}", 10, 0) == b"%d" % index
    disk.close()
    assert disk.open_files == 0


def test_a_replaced_file_is_read_and_written_anew(disk, tmp_path):
    """Its descriptor was cached; the replacement may come from any thread."""
    path = f"{tmp_path}/x"
    disk.append(path, [b"old"])
    with ThreadPoolExecutor(1) as other:
        other.submit(disk.replace, path, b"new").result()
    assert disk.pread(path, 10, 0) == b"new"
    disk.replace(path, b"newer")
    disk.append(path, [b", and more"])
    disk.fsync(path)
    assert disk.read(path) == b"newer, and more"
    assert disk.open_files == 1


def test_long_walks_leave_the_cache_alone(disk, tmp_path):
    path = f"{tmp_path}/x"
    with ThreadPoolExecutor(1) as other:
        other.submit(disk.extend, path, b"abc").result()
        other.submit(disk.extend, path, b"def").result()
        assert other.submit(disk.read_part, path, 3, 2).result() == b"cde"
    assert disk.open_files == 0
    with pytest.raises(FileNotFoundError):
        disk.read_part(f"{tmp_path}/nothing", 1, 0)


def test_appends_take_any_number_of_buffers(disk, tmp_path):
    path = f"{tmp_path}/many"
    buffers = [b"%d," % index for index in range(3000)]
    disk.append(path, buffers)
    disk.append(path, [b"end"])
    assert disk.read(path) == b"".join(buffers) + b"end"


def test_a_short_write_is_completed(disk, tmp_path, monkeypatch):
    real = os.writev
    monkeypatch.setattr(os, "writev", lambda fd, buffers: real(fd, [bytes(buffers[0])[:2]]))
    disk.append(f"{tmp_path}/short", [b"abc", memoryview(b"defg")])
    assert disk.read(f"{tmp_path}/short") == b"abcdefg"


def test_files_are_forgotten_when_their_name_changes(disk, tmp_path):
    disk.mkdir(f"{tmp_path}/a")
    disk.append(f"{tmp_path}/a/x", [b"one"])
    disk.rename(f"{tmp_path}/a", f"{tmp_path}/b")
    disk.mkdir(f"{tmp_path}/a")
    disk.append(f"{tmp_path}/a/x", [b"two"])
    assert disk.read(f"{tmp_path}/b/x") == b"one"
    assert disk.read(f"{tmp_path}/a/x") == b"two"
    disk.unlink(f"{tmp_path}/a/x")
    disk.append(f"{tmp_path}/a/x", [b"three"])
    assert disk.pread(f"{tmp_path}/a/x", 10, 0) == b"three"


def test_truncated_files_go_on_at_their_new_end(disk, tmp_path):
    disk.append(f"{tmp_path}/x", [b"abcdef"])
    disk.truncate(f"{tmp_path}/x", 2)
    disk.append(f"{tmp_path}/x", [b"Z"])
    assert disk.read(f"{tmp_path}/x") == b"abZ"


def test_replacing_leaves_no_other_file(disk, tmp_path):
    disk.replace(f"{tmp_path}/x", b"old")
    disk.replace(f"{tmp_path}/x", b"new")
    assert disk.listdir(str(tmp_path)) == ["x"]
    assert disk.read(f"{tmp_path}/x") == b"new"


def test_trees_are_removed_and_missing_ones_are_no_error(disk, tmp_path):
    disk.mkdir(f"{tmp_path}/a/b")
    disk.append(f"{tmp_path}/a/b/x", [b"1"])
    disk.remove_tree(f"{tmp_path}/a")
    disk.remove_tree(f"{tmp_path}/a")
    disk.unlink(f"{tmp_path}/a")
    assert disk.size(f"{tmp_path}/a") == -1


def test_another_process_finds_the_directory_locked(disk, tmp_path):
    lock = disk.lock(f"{tmp_path}/.lock")
    code = (
        "import sys; from sparkraft.storage.disk import *\n"
        "try: OsDisk(9).lock(sys.argv[1]); print('free')\n"
        "except DirectoryLocked as error: print('locked', error)"
    )
    command = [sys.executable, "-c", code, f"{tmp_path}/.lock"]
    held = subprocess.run(command, capture_output=True, text=True, check=True)
    assert held.stdout.startswith("locked another process holds")
    lock.release()
    free = subprocess.run(command, capture_output=True, text=True, check=True)
    assert free.stdout.strip() == "free"


def test_the_soft_file_limit_is_raised_and_too_low_a_one_is_named(monkeypatch):
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    assert raise_file_limit() == (1 << 20 if hard == resource.RLIM_INFINITY else hard)
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == hard
    monkeypatch.setattr(disk_module.resource, "getrlimit", lambda _: (100, 100))
    with pytest.raises(FileLimitTooLow, match="only 100 files"):
        raise_file_limit()


def test_flushes_run_beside_appends(tmp_path):
    """Many threads' worth of flushes while the owner appends and rolls: nothing is torn."""
    manager = LogManager(
        OsDisk(open_files_max=4),
        [str(tmp_path)],
        replace(SMALL, flush_messages=1),
        clock=HandClock(),
        entropy=SeededDice(),
    )
    manager.load()
    logs = [manager.get_or_create("t", index, None) for index in range(6)]
    with ThreadPoolExecutor(3) as pool:
        running = []
        for index in range(400):
            log = logs[index % 6]
            info = append(log, b"%d" % index, epoch=index // 100)
            running.append((log, info, pool.submit(log.flush)))
            if index % 50 == 49:
                log.roll()
        for log, info, done in running:
            done.result(timeout=60)
            assert log.recovery_point > info.last_offset
    manager.close(clean=False)
    again = LogManager(OsDisk(), [str(tmp_path)], SMALL, clock=HandClock(), entropy=SeededDice())
    again.load()
    for number, log in enumerate(logs):
        expected = [b"%d" % index for index in range(400) if index % 6 == number]
        assert [value for _, value in contents(again.get("t", number))] == expected
        assert again.get("t", number).leader_epochs == log.leader_epochs


class TestViews:
    """What is mapped is what `pread` gives, and is let go in time."""

    @pytest.fixture
    def path(self, disk, tmp_path):
        path = f"{tmp_path}/x"
        disk.append(path, [os.urandom(3 * WINDOW_BYTES + 100_000)])
        return path

    @pytest.mark.parametrize(
        ("at", "count"),
        [
            (0, WINDOW_BYTES),
            (7, 200_000),
            (WINDOW_BYTES - 100_000, 200_000),
            (WINDOW_BYTES - 1, WINDOW_BYTES + 2),
        ],
    )
    def test_they_are_the_files_bytes(self, disk, path, at, count):
        pieces = disk.view(path, count, at, grows=True)
        for piece in pieces:
            assert isinstance(piece, memoryview if len(piece) >= VIEW_BYTES_MIN else bytes)
        assert any(isinstance(piece, memoryview) for piece in pieces)
        assert b"".join(pieces) == disk.pread(path, count, at)

    @pytest.mark.parametrize(
        ("at", "count"),
        [
            (0, 1000),  # small
            (3 * WINDOW_BYTES, 100_000),  # where the file grows
            (3 * WINDOW_BYTES - 100, 100_100),
            (3 * WINDOW_BYTES, 1 << 20),  # more than there is
        ],
    )
    def test_what_is_small_or_near_the_end_is_read(self, disk, path, at, count):
        (data,) = disk.view(path, count, at, grows=True)
        assert isinstance(data, bytes)
        assert data == disk.pread(path, count, at)

    def test_of_a_file_that_does_not_grow_the_end_is_mapped_too(self, disk, path):
        pieces = disk.view(path, 200_000, 3 * WINDOW_BYTES - 100_000, grows=False)
        assert all(isinstance(piece, memoryview) for piece in pieces)
        assert b"".join(pieces) == disk.pread(path, 200_000, 3 * WINDOW_BYTES - 100_000)
        (data,) = disk.view(path, 200_000, 3 * WINDOW_BYTES, grows=False)
        assert data == disk.pread(path, 200_000, 3 * WINDOW_BYTES)
        assert len(data) == 100_000

    def test_a_file_that_is_cut_replaced_or_gone_is_mapped_anew(self, disk, path, tmp_path):
        def view(name=path):
            return b"".join(disk.view(name, 100_000, 0, grows=True))

        before = view()
        disk.truncate(path, 50_000)
        assert view() == before[:50_000]
        disk.append(path, [bytes(2 * WINDOW_BYTES)])
        assert view() == before[:50_000] + bytes(50_000)
        disk.mkdir(f"{tmp_path}/d")
        disk.rename(path, f"{tmp_path}/d/y")
        with pytest.raises(FileNotFoundError):
            view()
        assert view(f"{tmp_path}/d/y")[50_000:] == bytes(50_000)
        disk.rename(f"{tmp_path}/d", f"{tmp_path}/e")
        disk.write(path, b"1" * WINDOW_BYTES)
        assert view() == b"1" * 100_000
        disk.write(path, b"2" * WINDOW_BYTES)
        assert view() == b"2" * 100_000
        disk.unlink(path)
        with pytest.raises(FileNotFoundError):
            view()
        assert view(f"{tmp_path}/e/y")[50_000:] == bytes(50_000)

    def test_a_short_piece_is_not_taken_from_a_mapping(self, disk, path):
        """Looking into one whose file somebody else cut short would end the process."""
        at = WINDOW_BYTES - 100_000
        disk.view(path, 200_000, WINDOW_BYTES, grows=True)
        os.truncate(path, WINDOW_BYTES + 50)
        pieces = disk.view(path, 100_050, at, grows=True)
        assert [(type(piece), len(piece)) for piece in pieces] == [
            (memoryview, 100_000),
            (bytes, 50),
        ]
        assert b"".join(pieces) == disk.pread(path, 100_050, at)
        os.truncate(path, WINDOW_BYTES)
        (data,) = disk.view(path, 100_050, at, grows=True)
        assert data == disk.pread(path, 100_050, at)

    def test_those_nobody_asks_for_are_let_go(self, disk, path):
        disk.view(path, 100_000, 0, grows=True)
        held = disk.view(path, 100_000, WINDOW_BYTES, grows=True)
        assert mapped(path) == 2
        disk.release_views()
        disk.view(path, 100_000, 0, grows=True)
        disk.release_views()
        assert mapped(path) == 2  # one of them by who holds a view
        data = b"".join(held)
        del held
        assert mapped(path) == 1
        assert data == disk.pread(path, 100_000, WINDOW_BYTES)
        disk.release_views(entirely=True)
        assert mapped(path) == 0

    def test_they_are_bounded(self, disk, path, monkeypatch):
        monkeypatch.setattr(mapped_module, "WINDOWS_MAX", 2)
        for at in (0, WINDOW_BYTES, 0, 2 * WINDOW_BYTES):
            disk.view(path, 100_000, at, grows=True)
            assert mapped(path) <= 2
        disk.release_views()
        disk.view(path, 100_000, WINDOW_BYTES, grows=True)
        disk.release_views()
        assert mapped(path) == 1

    def test_once_unread_views_hold_too_many_windows_records_are_copied(
        self, disk, path, monkeypatch
    ):
        monkeypatch.setattr(mapped_module, "WINDOWS_MAX", 1)
        monkeypatch.setattr(mapped_module, "UNREAD_WINDOWS_MAX", 1)

        def view(window):
            (data,) = disk.view(path, 100_000, window * WINDOW_BYTES, grows=True)
            return data

        unread = [view(0), view(1)]
        copied = view(2)
        assert isinstance(copied, bytes)
        assert copied == disk.pread(path, 100_000, 2 * WINDOW_BYTES)
        assert isinstance(view(1), memoryview), "it is still kept"
        assert mapped(path) == 2
        del unread
        assert isinstance(view(2), memoryview)

    def test_what_is_mapped_may_change_while_another_thread_forgets_files(self):
        """As the executor does, which brings a snapshot under its name."""
        files, failed, done = MappedFiles(), [], Event()
        interval = sys.getswitchinterval()

        def forget():
            try:
                while not done.is_set():
                    files.forget("/another")
            except RuntimeError as error:
                failed.append(error)

        thread = Thread(target=forget)
        sys.setswitchinterval(1e-6)
        try:
            thread.start()
            for turn in range(20_000):
                files._windows["/x", turn % 50] = memoryview(b"")
                if turn % 50 == 49:
                    files.forget_unused()
                    files.forget_unused()
        finally:
            done.set()
            thread.join()
            sys.setswitchinterval(interval)
        assert not failed

    def test_what_cannot_be_read_is_not_mapped(self, disk, path, monkeypatch):
        def refuse(*_, **__):
            raise OSError(errno.EFAULT, "a page can't be read")

        monkeypatch.setattr(mapped_module.mmap, "mmap", refuse)
        (data,) = disk.view(path, 100_000, 0, grows=True)
        assert data == disk.pread(path, 100_000, 0)


def mapped(path):
    """How often this process has mapped a file."""
    with open("/proc/self/maps") as maps:
        return sum(line.rstrip().endswith(path) for line in maps)


def test_only_the_owner_reads_the_metadata_log(disk, tmp_path):
    """Its log, snapshots and checkpoint of the format have passwords of dynamic configs."""
    folder = tmp_path / METADATA_DIR
    folder.mkdir()
    (tmp_path / "t-0").mkdir()
    modes = {}
    for name in (f"{METADATA_DIR}/00.log", "t-0/00.log"):
        disk.append(f"{tmp_path}/{name}", [b"x"])
    for name in (f"{METADATA_DIR}/00-00.checkpoint.part", "bootstrap.checkpoint.part", "t-0/00.x"):
        disk.write(f"{tmp_path}/{name}", b"x")
    disk.replace(f"{folder}/quorum-state", b"x")
    disk.extend(f"{folder}/01.log", b"x")
    for path in tmp_path.rglob("*"):
        if path.is_file():
            modes[str(path.relative_to(tmp_path))] = path.stat().st_mode & 0o777
    private = {name for name, mode in modes.items() if mode == 0o600}
    assert modes.keys() - private == {"t-0/00.log", "t-0/00.x"}
    assert len(private) == 5
