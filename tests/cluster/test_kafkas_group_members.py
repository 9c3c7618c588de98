"""Members of Kafka's VerifiableConsumer share partitions while coordinators and members are killed.

Each member reports what it was assigned, read and committed. `Ledger` checks these reports: a
partition has one owner at a time, an owner continues at the committed offset, and no record is
left out.
"""

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

import pytest

from tests.support.clusters import Cluster, Member
from tests.support.coordinators import group_coordinator, name_coordinated_by
from tests.support.java_programs import JavaProgram, killed_at_the_end
from tests.support.kafka_tools import kafka_tool_command, run_kafka_tool
from tests.support.ports import wait_until
from tests.support.replicas import records_produced_throughout, until_in_sync

pytestmark = [pytest.mark.real_clients, pytest.mark.java]

MEMBERS = {
    "sparkraft": [Member(1), Member(2), Member(3)],
    "mixed": [Member(1), Member(2), Member(3, "kafka")],
}
FIRST_COORDINATOR = {"sparkraft": 1, "mixed": 3}
SESSION_MS = 10_000
SETTINGS = {
    "broker.session.timeout.ms": "9000",
    "broker.heartbeat.interval.ms": "500",
    "offsets.topic.num.partitions": "3",
    "offsets.topic.replication.factor": "3",
    "min.insync.replicas": "2",
    "group.consumer.min.session.timeout.ms": str(SESSION_MS),
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.min.heartbeat.interval.ms": "1000",
    "group.consumer.heartbeat.interval.ms": "1000",
}
TOPIC, PARTITIONS = "shared", 4
SECONDS = 120
MORE = 40
"""Records that each step of the test waits for."""

ORDER = ("records_consumed", "offsets_committed", "partitions_revoked", "partitions_assigned")
"""Of events in the same millisecond: an owner's last ones come before its successor's first."""


class GroupMember(JavaProgram):
    """One VerifiableConsumer."""

    def __init__(
        self, cluster: Cluster, jars: Path, name: str, *, group: str, protocol: str
    ) -> None:
        super().__init__(
            [
                *kafka_tool_command(jars, "org.apache.kafka.tools.VerifiableConsumer"),
                "--bootstrap-server", cluster.bootstrap, "--topic", TOPIC, "--group-id", group,
                "--group-protocol", protocol,
                *(["--session-timeout", str(SESSION_MS)] if protocol == "classic" else []),
            ],
            cluster.directory / f"{name}.out",
        )  # fmt: skip
        self.name = name

    def owned(self) -> set[int]:
        """The partitions it has been assigned and has not given up."""
        found: set[int] = set()
        for event in self.events():
            if event["name"] == "partitions_assigned":
                found |= partitions_in(event)
            elif event["name"] == "partitions_revoked":
                found -= partitions_in(event)
        return found

    def read(self) -> int:
        """How many records it has read."""
        return sum(e["count"] for e in self.events() if e["name"] == "records_consumed")


def partitions_in(event: dict[str, Any]) -> set[int]:
    """The partitions of an event."""
    return {entry["partition"] for entry in event["partitions"]}


class Ledger:
    """Checks the events of all members in their order."""

    def __init__(self) -> None:
        self.owners: dict[int, str] = {}
        self.positions: dict[tuple[str, int], int] = {}
        self.starts: dict[int, set[int]] = defaultdict(lambda: {0})
        """Partition → the offsets at which its next owner may continue."""
        self.ends: dict[int, int] = defaultdict(int)
        """Partition → the end of what was read without a gap."""
        self.takeovers = 0

    def check(self, members: Iterable[GroupMember], killed: Iterable[GroupMember]) -> None:
        """Check all of them; a killed member gives its partitions up without an event."""
        events = [(event, member.name) for member in members for event in member.events()]
        known = [(event, name) for event, name in events if event["name"] in ORDER]
        known.sort(key=lambda each: (each[0]["timestamp"], ORDER.index(each[0]["name"])))
        dead = {member.name for member in killed}
        for event, name in known:
            getattr(self, f"_{event['name']}")(event, name, dead)

    def _partitions_assigned(self, event: dict[str, Any], name: str, dead: set[str]) -> None:
        for index in partitions_in(event):
            owner = self.owners.get(index)
            assert owner is None or owner in dead, f"{owner} and {name} own {index}: {event}"
            if owner is not None:
                # Its last commit may have arrived without a report.
                self.starts[index].add(self.positions.get((owner, index), 0))
            self.owners[index] = name
            self.positions.pop((name, index), None)
            self.takeovers += 1

    def _partitions_revoked(self, event: dict[str, Any], name: str, _: set[str]) -> None:
        for index in partitions_in(event):
            assert self.owners.pop(index) == name, event

    def _records_consumed(self, event: dict[str, Any], name: str, _: set[str]) -> None:
        for entry in event["partitions"]:
            index, first = entry["partition"], entry["minOffset"]
            assert self.owners[index] == name, f"{name} does not own {index}: {event}"
            position = self.positions.get((name, index))
            allowed = self.starts[index] if position is None else {position}
            assert first in allowed, f"{name} continues {index} at {first}, not at {allowed}"
            end = entry["maxOffset"] + 1
            assert entry["count"] == end - first, event
            self.positions[name, index] = end
            self.ends[index] = max(self.ends[index], end)

    def _offsets_committed(self, event: dict[str, Any], _: str, __: set[str]) -> None:
        for entry in event["offsets"]:
            index = entry["partition"]
            if event["success"]:
                self.starts[index] = {entry["offset"]}
            else:
                # The response may have been lost.
                self.starts[index].add(entry["offset"])


def until_shared(*members: GroupMember) -> None:
    """Return once the members own all partitions, the same number each."""
    share = PARTITIONS // len(members)

    def shared() -> bool:
        for member in members:
            assert member.is_running, member.tail()
        owned = [member.owned() for member in members]
        return all(len(own) == share for own in owned) and len(set().union(*owned)) == PARTITIONS

    wait_until(shared, f"{len(members)} members share the partitions", SECONDS, pause=0.2)


def until_read_more(*members: GroupMember) -> None:
    """Return once each has read MORE records from now on."""
    wanted = [member.read() + MORE for member in members]
    wait_until(
        lambda: all(m.read() >= count for m, count in zip(members, wanted, strict=True)),
        f"{MORE} more records are read",
        SECONDS,
        pause=0.2,
    )


def described(cluster: Cluster, jars: Path, group: str, *arguments: str) -> list[dict[str, str]]:
    """`kafka-consumer-groups --describe`: its rows by column."""
    done = run_kafka_tool(
        jars, "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
        "--bootstrap-server", cluster.bootstrap, "--describe", "--group", group, *arguments,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    header, *rows = [line.split() for line in done.stdout.splitlines() if line.strip()]
    return [dict(zip(header, row, strict=False)) for row in rows]


def bounce(cluster: Cluster, group: str) -> None:
    """kill -9 the group's coordinator, start it again, and return once it has all records."""
    node = group_coordinator(cluster, group)
    cluster.kill(node)
    cluster.start([node])
    until_in_sync(cluster, TOPIC, PARTITIONS, 3)
    until_in_sync(cluster, "__consumer_offsets", 3, 3)


@pytest.mark.parametrize(
    ("nodes", "protocol", "rounds"),
    [
        ("sparkraft", "consumer", 1),
        pytest.param("sparkraft", "consumer", 3, marks=pytest.mark.long),
        pytest.param("sparkraft", "classic", 2, marks=pytest.mark.long),
        pytest.param("mixed", "consumer", 2, marks=pytest.mark.long),
        pytest.param("mixed", "classic", 2, marks=pytest.mark.long),
    ],
)
def test_a_group_survives_its_coordinators_and_members(
    tmp_path: Path,
    kafka_jars: Path,
    nodes: Literal["sparkraft", "mixed"],
    protocol: str,
    rounds: int,
) -> None:
    """Each round kills the group's coordinator, then a member, whose successor joins."""
    with Cluster(tmp_path, MEMBERS[nodes], overrides=SETTINGS, jars=kafka_jars) as cluster:
        cluster.create_topic(TOPIC, partitions=PARTITIONS, replicas=3)
        until_in_sync(cluster, TOPIC, PARTITIONS, 3)
        group = name_coordinated_by(cluster, FIRST_COORDINATOR[nodes], "members", group_coordinator)
        members = [
            GroupMember(cluster, kafka_jars, f"member-{n}", group=group, protocol=protocol)
            for n in range(rounds + 1)
        ]
        with (
            records_produced_throughout(cluster, TOPIC, PARTITIONS, rate=100) as stream,
            killed_at_the_end(*members),
        ):
            members[0].start()
            members[1].start()
            for number in range(rounds):
                pair = members[number : number + 2]
                until_shared(*pair)
                until_read_more(*pair)
                bounce(cluster, group)
                until_read_more(*pair)
                pair[0].kill()
                if number + 2 <= rounds:
                    members[number + 2].start()
            last = members[-1]
            until_shared(last)
            until_read_more(last)
            acknowledged = {n: len(values) for n, values in stream.stop().items()}
            until_committed(cluster, kafka_jars, group, acknowledged)
            assert last.terminate() in {0, 143}
        ledger = Ledger()
        ledger.check(members, members[:-1])
        assert dict(ledger.ends) == acknowledged
        assert ledger.takeovers >= PARTITIONS * (rounds + 1) // 2
        (state,) = described(cluster, kafka_jars, group, "--state")
        assert "Empty" in state.values(), state


def until_committed(cluster: Cluster, jars: Path, group: str, ends: dict[int, int]) -> None:
    """Return once `kafka-consumer-groups` shows one member without lag."""

    def all_read() -> bool:
        rows = described(cluster, jars, group)
        offsets = {int(row["PARTITION"]): row["CURRENT-OFFSET"] for row in rows}
        owners = {row["CONSUMER-ID"] for row in rows}
        wanted = {index: str(end) for index, end in ends.items()}
        return offsets == wanted and len(owners) == 1 and {r["LAG"] for r in rows} == {"0"}

    wait_until(all_read, "all records are read", SECONDS, pause=1)
