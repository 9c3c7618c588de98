"""Which voters of a described quorum have lost their directory."""

from sparkraft.base.ids import Uuid
from sparkraft.client.lost_directory import LostDirectory, lost_directories_in
from sparkraft.client.values import QuorumInfo, QuorumReplica

OLD, NEW = Uuid(b"o" * 16), Uuid(b"n" * 16)


def replica(node: int, directory: Uuid, fetched: int) -> QuorumReplica:
    return QuorumReplica(
        id=node,
        directory_id=directory,
        log_end_offset=1,
        last_fetch_ms=fetched,
        last_caught_up_ms=fetched,
    )


def found(voter: QuorumReplica, observer: QuorumReplica) -> list[LostDirectory]:
    quorum = QuorumInfo(
        leader_id=1,
        leader_epoch=1,
        high_watermark=1,
        voters=(replica(1, Uuid(b"1" * 16), 9), voter),
        observers=(observer, replica(11, NEW, 9)),
        endpoints={},
    )
    return lost_directories_in(quorum)


def test_an_observer_with_a_voters_id_lost_its_directory() -> None:
    lost = LostDirectory(node_id=3, lost=OLD, current=NEW)
    assert found(replica(3, OLD, -1), replica(3, NEW, 9)) == [lost]
    remove, add = lost.repair("--bootstrap-server h:1")
    assert f"--controller-id 3 --controller-directory-id {OLD}" in remove
    assert "add-controller --bootstrap-server h:1" in add


def test_the_observer_that_was_replaced_already_is_none() -> None:
    assert found(replica(3, NEW, 9), replica(3, OLD, 5)) == []


def test_voters_without_directory_ids_are_none() -> None:
    assert found(replica(3, Uuid.ZERO, 5), replica(3, NEW, 9)) == []
