"""The bytes of a connection: equal to those of kazoo's serialization, and refused if damaged."""

import pytest
from kazoo.protocol import serialization as kazoo
from kazoo.protocol.states import ZnodeStat
from kazoo.security import ACL, Id

from sparkraft.base.errors import DecodeError
from sparkraft.zookeeper.errors import BadVersionError, MultiError, NoNodeError
from sparkraft.zookeeper.exchange import (
    EventType,
    Exchange,
    SessionOpened,
    SessionState,
    WatchEvent,
)
from sparkraft.zookeeper.jute import Reader
from sparkraft.zookeeper.requests import (
    OPEN_ACL,
    Check,
    Create,
    Delete,
    Exists,
    GetAcl,
    GetChildren,
    GetData,
    Multi,
    MultiRead,
    SetAcl,
    SetData,
    SetWatches,
    Stat,
    Sync,
)

OPEN = [ACL(31, Id("world", "anyone"))]
REPLY = bytes.fromhex("00000001 0000000000000009 00000000")
OPENED = bytes.fromhex(
    "00000025 00000000 00001770 0000000000000abc 00000010 000102030405060708090a0b0c0d0e0f 00"
)


def opened(chroot: str = "") -> Exchange:
    exchange = Exchange(chroot)
    assert isinstance(exchange.feed(OPENED)[0], SessionOpened)
    return exchange


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (Create(path="/a", data=b"x"), kazoo.Create("/a", b"x", OPEN, 0)),
        (
            Create(path="/a", ephemeral=True, sequential=True),
            kazoo.Create("/a", None, OPEN, 3),
        ),
        (Delete(path="/a", version=7), kazoo.Delete("/a", 7)),
        (Exists(path="/a", watch=True), kazoo.Exists("/a", lambda _: None)),
        (GetData(path="/ä"), kazoo.GetData("/ä", None)),
        (SetData(path="/a", data=b"y", version=3), kazoo.SetData("/a", b"y", 3)),
        (GetAcl(path="/a"), kazoo.GetACL("/a")),
        (
            SetAcl(path="/a", acl=OPEN_ACL, version=2),
            kazoo.SetACL("/a", OPEN, 2),
        ),
        (GetChildren(path="/a"), kazoo.GetChildren2("/a", None)),
        (Sync(path="/a"), kazoo.Sync("/a")),
        (
            Multi((Check(path="/e", version=4), SetData(path="/a", data=b"z", version=4))),
            kazoo.Transaction([kazoo.CheckVersion("/e", 4), kazoo.SetData("/a", b"z", 4)]),
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_requests_have_the_bytes_of_kazoo(ours, theirs) -> None:
    assert ours.op == theirs.type
    assert ours.encode("") == bytes(theirs.serialize())


def test_a_chroot_precedes_every_path() -> None:
    assert GetData(path="/a").encode("/kafka") == bytes(kazoo.GetData("/kafka/a", None).serialize())
    assert GetData(path="/").encode("/kafka") == bytes(kazoo.GetData("/kafka", None).serialize())
    watches = SetWatches(zxid=5, data=["/a"], exist=[], child=["/"])
    plain = SetWatches(zxid=5, data=["/kafka/a"], exist=[], child=["/kafka"])
    assert watches.encode("/kafka") == plain.encode("")
    assert Create(path="/a").decode(Reader(b"\0\0\0\x08/kafka/a"), "/kafka") == "/a"


def test_the_first_frame_continues_a_session() -> None:
    session = SessionState(0xABC, bytes(range(16)), 9)
    theirs = bytes(kazoo.Connect(0, 9, 6000, 0xABC, bytes(range(16)), False).serialize())
    frame = Exchange("").open(session, 6000)
    assert frame[:4] == len(theirs).to_bytes(4, "big")
    assert frame[4:] == theirs


def test_a_session_of_timeout_zero_has_expired() -> None:
    expired = OPENED.replace(bytes.fromhex("00001770"), bytes(4))
    assert Exchange("").feed(expired) == [SessionOpened(0, 0, bytes(range(16)), False)]


def test_bytes_may_arrive_one_by_one() -> None:
    exchange = Exchange("")
    found = [each for byte in OPENED for each in exchange.feed(bytes([byte]))]
    assert found == [SessionOpened(0xABC, 6000, bytes(range(16)), False)]


def test_events_are_told_apart_from_replies() -> None:
    exchange = opened("/kafka")
    body = (
        bytes.fromhex("ffffffff ffffffffffffffff 00000000 00000003 00000003 00000008") + b"/kafka/a"
    )
    (event,) = exchange.feed(len(body).to_bytes(4, "big") + body)
    assert event == WatchEvent(EventType.NODE_DATA_CHANGED, "/a")


def test_a_reply_out_of_order_is_refused() -> None:
    exchange = opened()
    exchange.encode(GetData(path="/a"))
    exchange.encode(GetData(path="/b"))
    wrong = REPLY.replace(bytes.fromhex("00000001"), bytes.fromhex("00000002"), 1)
    with pytest.raises(DecodeError, match="out of order"):
        exchange.feed(len(wrong).to_bytes(4, "big") + wrong)


@pytest.mark.parametrize("size", ["7fffffff", "ffffffff", "48545450"])
def test_a_frame_that_zookeeper_does_not_send_is_refused(size: str) -> None:
    with pytest.raises(DecodeError, match="not from a ZooKeeper server"):
        Exchange("").feed(bytes.fromhex(size))


def test_a_stat_has_eleven_fields() -> None:
    raw = kazoo.stat_struct.pack(*range(1, 12))
    stat = Exists(path="/a").decode(Reader(raw), "")
    assert stat == Stat(*ZnodeStat(*range(1, 12)))


@pytest.mark.parametrize("cut", range(68))
def test_a_stat_that_ends_too_early_is_refused(cut: int) -> None:
    with pytest.raises(DecodeError):
        Exists(path="/a").decode(Reader(bytes(cut)), "")


def test_a_transaction_that_failed_names_the_culprit() -> None:
    failed = "ffffffff 00 {0} {0}"
    codes = ["00000000", "ffffff99", "fffffffe"]
    raw = bytes.fromhex("".join(failed.format(code) for code in codes) + "ffffffff 01 ffffffff")
    operations = (Check(path="/e", version=1), SetData(path="/a", data=b""), Delete(path="/b"))
    with pytest.raises(MultiError) as caught:
        Multi(operations).decode(Reader(raw), "")
    assert (caught.value.index, caught.value.path) == (1, "/a")
    assert caught.value.codes == (0, -103, -2)


def read_frame(path: str) -> bytes:
    """As MultiOperationRecord has it: op 4, not done, -1, then the request."""
    return bytes.fromhex("00000004 00 ffffffff") + GetData(path=path).encode("/kafka")


def test_reads_sent_together_are_framed_as_a_transaction() -> None:
    reads = MultiRead((GetData(path="/a"), GetData(path="/b")))
    assert reads.op == 22
    end = bytes.fromhex("ffffffff 01 ffffffff")
    assert reads.encode("/kafka") == read_frame("/a") + read_frame("/b") + end


STAT = kazoo.stat_struct.pack(*range(1, 12))
READ_TOGETHER = (
    bytes.fromhex("00000004 00 00000000 00000002 6869") + STAT
    + bytes.fromhex("ffffffff 00 ffffff9b ffffff9b")
    + bytes.fromhex("00000004 00 00000000 ffffffff") + STAT
)  # fmt: skip


def test_one_of_the_reads_sent_together_may_be_refused() -> None:
    reads = MultiRead(tuple(GetData(path=path) for path in ("/a", "/b", "/c")))
    first, second, third = reads.decode(Reader(READ_TOGETHER), "")
    assert first == (b"hi", Stat(*range(1, 12)))
    assert third == (b"", Stat(*range(1, 12)))
    assert isinstance(second, NoNodeError)
    assert second.path == "/b"


@pytest.mark.parametrize("cut", range(len(READ_TOGETHER)))
def test_a_reply_to_reads_that_ends_too_early_is_refused(cut: int) -> None:
    reads = MultiRead(tuple(GetData(path=path) for path in ("/a", "/b", "/c")))
    with pytest.raises(DecodeError):
        reads.decode(Reader(READ_TOGETHER[:cut]), "")


def test_fewer_results_than_reads_are_refused() -> None:
    raw = bytes.fromhex("ffffffff 01 ffffffff")
    with pytest.raises(DecodeError, match="fewer results than requests"):
        MultiRead((GetData(path="/a"),)).decode(Reader(raw), "")


def test_errors_have_the_names_of_their_codes() -> None:
    assert str(NoNodeError(-101, "/a")) == "ZooKeeper: NO_NODE for /a"
    assert str(BadVersionError(-103)) == "ZooKeeper: BAD_VERSION"
