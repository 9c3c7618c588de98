"""The election journal: bounded, kept over a restart, and never in the way."""

import json

from sparkraft.base.ids import BrokerId, LeaderEpoch, Millis
from sparkraft.raft.events import LeaderChange
from sparkraft.raft.replica import Ballot, Transition
from sparkraft.raft.states import Follower, Prospective, Unattached
from sparkraft.raft.voters import Endpoint, ReplicaKey
from sparkraft.server.raft.election_journal import ENTRIES_MAX, FILE_NAME, ElectionJournal
from sparkraft.storage.disk import OsDisk


class StillClock:
    def wall_ms(self):
        return Millis(1_000)

    def mono_ms(self):
        return Millis(0)


def journal_in(path):
    return ElectionJournal(OsDisk(), str(path), StillClock(), 1)


def step(epoch, *, reason="why", at=0):
    new = Unattached(epoch=LeaderEpoch(epoch), election_deadline=None)
    return Transition(old=new, new=new, reason=reason, at=Millis(at))


def test_it_is_kept_over_a_restart(tmp_path):
    journal = journal_in(tmp_path)
    journal.note_transition(step(1, at=5))
    journal.note_transition(step(2, at=12))
    change = LeaderChange(
        leader_id=BrokerId(3),
        voter_ids=(BrokerId(1), BrokerId(3)),
        granting_voter_ids=(BrokerId(3), BrokerId(1)),
    )
    journal.note_leader_change(change, 2, 17)
    again = list(journal_in(tmp_path).entries())
    assert again == list(journal.entries())
    assert [entry.lasted_ms for entry in again] == [-1, 7, -1]
    assert again[2].ballots == ((1, True, ""), (3, True, ""))


def test_it_is_bounded_in_memory_and_on_disk(tmp_path):
    journal = journal_in(tmp_path)
    for epoch in range(3 * ENTRIES_MAX):
        journal.note_transition(step(epoch))
    assert len(list(journal.entries())) == ENTRIES_MAX
    assert journal.dropped == 2 * ENTRIES_MAX
    lines = (tmp_path / FILE_NAME).read_bytes().splitlines()
    assert ENTRIES_MAX <= len(lines) <= 2 * ENTRIES_MAX
    assert json.loads(lines[-1])["epoch"] == 3 * ENTRIES_MAX - 1
    assert next(e.epoch for e in journal_in(tmp_path).entries()) == 2 * ENTRIES_MAX


def test_a_torn_or_strange_line_costs_only_itself(tmp_path):
    journal = journal_in(tmp_path)
    journal.note_transition(step(1))
    with (tmp_path / FILE_NAME).open("ab") as file:
        file.write(b'{"at": 1, "colour": "red"}\n[]\n\xff\n{"at": 1, "ki')
    again = journal_in(tmp_path)
    again.note_transition(step(2))
    assert [entry.epoch for entry in journal_in(tmp_path).entries()] == [1, 2]


def test_the_same_answer_again_is_not_noted(tmp_path):
    journal = journal_in(tmp_path)
    refused = Ballot(ReplicaKey(BrokerId(2)), LeaderEpoch(4), True, "we follow 3 in this epoch")
    for _ in range(5):
        journal.note_ballot(refused)
    journal.note_ballot(Ballot(ReplicaKey(BrokerId(2)), LeaderEpoch(4), True, None))
    assert [e.ballots for e in journal.entries()] == [
        ((1, False, "we follow 3 in this epoch"),),
        ((1, True, ""),),
    ]


def test_going_to_and_fro_is_noted_once_and_counted(tmp_path):
    journal = journal_in(tmp_path)
    follower = Follower(
        epoch=LeaderEpoch(4),
        leader_id=BrokerId(2),
        leader_endpoints=(Endpoint("C", "h", 1),),
        voted=None,
        fetch_deadline=Millis(0),
        update_voter_at=Millis(0),
    )
    prospective = Prospective(
        epoch=LeaderEpoch(4),
        leader_id=BrokerId(2),
        leader_endpoints=(),
        voted=None,
        granted_by=frozenset({BrokerId(1)}),
        rejected_by=frozenset(),
        election_deadline=Millis(0),
    )
    for _ in range(10):
        journal.note_transition(
            Transition(old=follower, new=prospective, reason="refused", at=Millis(0))
        )
        journal.note_transition(
            Transition(old=prospective, new=follower, reason="2 leads", at=Millis(0))
        )
    journal.note_transition(step(5, reason="epoch 5 seen"))
    assert [(e.kind, e.reason) for e in journal.entries()] == [
        ("prospective", "refused"),
        ("follower", "2 leads"),
        ("unattached", "epoch 5 seen (18 repeated steps before)"),
    ]


def test_a_disk_that_refuses_it_ends_nothing(tmp_path):
    (tmp_path / FILE_NAME).mkdir()
    journal = journal_in(tmp_path)
    journal.note_transition(step(1))
    assert [entry.epoch for entry in journal.entries()] == [1]


def test_elections_are_timed_from_losing_a_leader_to_hearing_of_the_next(tmp_path):
    journal = journal_in(tmp_path)
    journal.note_contact(in_touch=False, epoch=1, now=Millis(0))
    journal.note_contact(in_touch=False, epoch=2, now=Millis(30))
    assert journal.leaderless_ms(Millis(40)) == 40
    assert not journal.has_met_leader
    journal.note_contact(in_touch=True, epoch=2, now=Millis(50))
    journal.note_contact(in_touch=False, epoch=2, now=Millis(60))
    assert journal.has_met_leader
    journal.note_contact(in_touch=True, epoch=2, now=Millis(99))  # the same leader: no election
    assert (journal.elections, journal.election_ms_last) == (1, 50)
    assert journal.leaderless_ms(Millis(99)) == 0
