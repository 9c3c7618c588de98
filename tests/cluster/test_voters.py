"""Changing the voters of a running quorum, going from static to dynamic ones, and resigning."""

import contextlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import Uuid
from sparkraft.cli import main as cli
from sparkraft.client.admin import Admin
from sparkraft.client.quorum_admin import remove_voter
from sparkraft.client.values import QuorumInfo
from tests.cluster.conftest import STEADY
from tests.support.clusters import Cluster, Member
from tests.support.ports import lasting_ports, wait_until

pytestmark = pytest.mark.real_clients

Run = Callable[..., str]


@pytest.fixture
def tool(capsys: pytest.CaptureFixture[str]) -> Run:
    """`sparkraft` with these arguments, which must succeed; what it printed."""

    def run(*arguments: str, code: int = 0) -> str:
        capsys.readouterr()
        ended = cli.main(list(arguments))
        said = capsys.readouterr()
        assert ended == code, said.err
        return said.out if code == 0 else said.err

    return run


NOT_YET = (
    "another voter change is in progress",
    "not committed",
    "has not caught up with the log",
    "is already in flight",
)
"""Why a change of the voters is refused for now, by REQUEST_TIMED_OUT."""


def said_in_time(change: list[str], tool: Run) -> str:
    """What is said of a change of the voters once it can be made."""
    said: list[str] = []

    def made() -> bool:
        try:
            said.append(tool(*change))
        except AssertionError as error:
            if not any(reason in str(error) for reason in NOT_YET):
                raise
        return bool(said)

    wait_until(made, "the voters are changed", pause=0.5)
    return said[0]


def refusal_in_time(change: list[str], tool: Run) -> str:
    """Why a change of the voters is refused, once the leader has begun its epoch."""
    said: list[str] = []

    def refused() -> bool:
        said.append(tool(*change, code=1))
        return not any(reason in said[-1] for reason in NOT_YET)

    wait_until(refused, "the leader says what is wrong with the change", pause=0.1)
    return said[-1]


def voters(cluster: Cluster) -> dict[int, Uuid]:
    return {v.id: v.directory_id for v in cluster.describe_quorum().voters}


def upgrade_kraft_version(cluster: Cluster, level: int = 1) -> KafkaError | None:
    async def work(admin: Admin) -> KafkaError | None:
        return (await admin.update_features({"kraft.version": level}))["kraft.version"]

    return cluster.ask(work)


def test_a_quorum_grows_from_one_voter_and_shrinks_again(tmp_path: Path, tool: Run) -> None:
    members = [Member(1), Member(2), Member(3)]
    with Cluster(tmp_path, members, quorum="standalone", overrides=STEADY) as cluster:
        server = ["--bootstrap-server", cluster.bootstrap]
        assert set(voters(cluster)) == {1}
        for node in (2, 3):
            config = str(cluster.nodes[node].properties_path)
            adding = ["metadata-quorum", *server, "add-controller", "--command-config", config]
            dry = tool(*adding, "--dry-run")
            assert dry.startswith(f"DRY RUN of adding controller {node} with directory id ")
            said = said_in_time(adding, tool)
            assert said.startswith(f"Added controller {node} with directory id ")
            assert said.endswith(f"CONTROLLER://127.0.0.1:{cluster.ports[node][1]}\n")
        assert set(voters(cluster)) == {1, 2, 3}
        assert "DUPLICATE_VOTER" in refusal_in_time(adding, tool)

        before = cluster.describe_quorum()
        assert "resigned" in tool("metadata-quorum", *server, "resign")
        leader = cluster.leader(other_than=before.leader_id)
        assert leader != before.leader_id
        removed = [
            "--controller-id", str(leader),
            "--controller-directory-id", str(voters(cluster)[leader]),
        ]  # fmt: skip
        removing = ["metadata-quorum", *server, "remove-controller", *removed]
        said = said_in_time(removing, tool)
        assert said.startswith(f"Removed  KRaft controller {leader} with directory id ")
        assert cluster.leader(other_than=leader) in {1, 2, 3} - {leader}
        assert set(voters(cluster)) == {1, 2, 3} - {leader}
        assert "VOTER_NOT_FOUND" in refusal_in_time(removing, tool)
        cluster.create_topic("after-all", of=leader)
        shown = json.loads(
            tool("metadata-quorum", *server, "describe", "--status", "--output", "json")
        )
        assert {v["id"] for v in shown["currentVoters"]} == {1, 2, 3} - {leader}


def test_a_static_quorum_becomes_dynamic_and_then_changes(tmp_path: Path) -> None:
    members = [Member(n, roles="controller") for n in (1, 2, 3)] + [Member(11, roles="broker")]
    with Cluster(tmp_path, members, quorum="static", overrides=STEADY) as cluster:

        def upgraded() -> bool:
            error = upgrade_kraft_version(cluster)
            if error is None:
                return True
            # Right after an election the voters have yet to tell their directories.
            assert error.code is ErrorCode.INVALID_UPDATE_VERSION, error
            return False

        wait_until(upgraded, "every voter has told its directory id")
        known = voters(cluster)
        assert Uuid.ZERO not in known.values()
        assert upgrade_kraft_version(cluster, 0) is not None

        leader = cluster.leader()
        other = next(n for n in known if n != leader)

        def removed() -> bool:
            try:
                cluster.ask(
                    lambda admin: remove_voter(
                        admin.cluster, voter_id=other, directory_id=known[other]
                    )
                )
            except KafkaError as error:
                if error.code is not ErrorCode.REQUEST_TIMED_OUT:
                    raise
                return False
            return True

        wait_until(removed, "a voter is removed", pause=0.5)
        assert set(voters(cluster)) == {1, 2, 3} - {other}
        cluster.create_topic("dynamic")
        cluster.stop()
        cluster.start()
        assert set(voters(cluster)) == {1, 2, 3} - {other}
        assert "dynamic" in cluster.topics()


def test_kraft_version_is_upgraded_by_a_command(
    tmp_path: Path, tool: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    """KIP-853: a static quorum becomes a dynamic one; nothing leads back."""
    members = [Member(n, roles="controller") for n in (1, 2, 3)] + [Member(11, roles="broker")]
    with Cluster(tmp_path, members, quorum="static", overrides=STEADY) as cluster:
        features = ["features", "--bootstrap-server", cluster.bootstrap]
        upgrade = [*features, "upgrade", "--feature", "kraft.version=1"]

        def level() -> str:
            rows = json.loads(tool(*features, "describe", "--output", "json"))
            return next(r["finalizedVersionLevel"] for r in rows if r["feature"] == "kraft.version")

        assert level() == "0"
        assert Uuid.ZERO in voters(cluster).values(), "the voters string names no directories"

        def can_be() -> bool:
            capsys.readouterr()
            code = cli.main([*upgrade, "--dry-run"])
            told = capsys.readouterr().out
            if code == 0:
                assert told == "kraft.version can be upgraded to 1.\n"
            else:  # right after an election
                assert told.startswith("Can not upgrade kraft.version to 1. "), told
            return code == 0

        wait_until(can_be, "every voter has told its directory id")
        assert level() == "0", "a dry run changes nothing"
        assert tool(*upgrade) == "kraft.version was upgraded to 1.\n"
        wait_until(lambda: level() == "1", "the broker has heard of it")
        known = voters(cluster)
        assert Uuid.ZERO not in known.values()
        assert len(set(known.values())) == len(known) == 3
        downgrade = [*features, "downgrade", "--feature", "kraft.version=0"]
        assert "1 out of 1 operation(s) failed." in tool(*downgrade, code=1)
        assert level() == "1"


def until_described(
    cluster: Cluster, as_wanted: Callable[[QuorumInfo], bool], what: str
) -> QuorumInfo:
    """The quorum once its leader tells what is wanted."""
    found: list[QuorumInfo] = []

    def described() -> bool:
        # While somebody is elected there is nobody to tell.
        with contextlib.suppress(KafkaError, OSError):
            found.append(cluster.describe_quorum(timeout_ms=5_000))
            return as_wanted(found[-1])
        return False

    wait_until(described, what, 90)
    return found[-1]


def ends(quorum: QuorumInfo) -> list[int]:
    return [voter.log_end_offset for voter in quorum.voters]


def test_a_voter_that_comes_back_on_another_port_is_asked_there(tmp_path: Path) -> None:
    """UpdateRaftVoter, and a Voters record that the others find in their logs (KIP-853)."""
    members = [Member(n, roles="controller") for n in (1, 2, 3)]
    with Cluster(tmp_path, members, overrides=STEADY) as cluster:
        known = voters(cluster)
        leader = cluster.leader()
        moved = next(n for n in cluster.controllers if n != leader)
        cluster.stop(moved)
        (port,) = lasting_ports(1)
        assert port != cluster.ports[moved][1]
        cluster.ports[moved] = (cluster.ports[moved][0], port)
        cluster.replace(moved, "sparkraft")
        cluster.start([moved])
        place = (("CONTROLLER", "127.0.0.1", port),)
        told = until_described(cluster, lambda q: q.endpoints[moved] == place, "it is written")
        everywhere = max(ends(told))
        until_described(cluster, lambda q: min(ends(q)) >= everywhere, "it is in every log")
        assert voters(cluster) == known

        # The log goes on without the one that moved. So it can't win: another can, with its vote.
        cluster.stop(moved)
        longest = max(ends(until_described(cluster, lambda _: True, "there is a leader")))
        goes_on = until_described(cluster, lambda q: q.high_watermark > longest, "the log goes on")
        asks = goes_on.leader_id
        cluster.kill(*cluster.running)
        cluster.start([asks, moved])
        assert cluster.leader() == asks
        assert voters(cluster) == known


def test_a_controller_that_may_joins_by_itself(tmp_path: Path) -> None:
    overrides = {**STEADY, "controller.quorum.auto.join.enable": "true"}
    members = [Member(1), Member(2), Member(3)]
    with Cluster(tmp_path, members, quorum="standalone", overrides=overrides) as cluster:
        wait_until(lambda: set(voters(cluster)) == {1, 2, 3}, "all of them are voters", 120)
        dead = cluster.leader()
        cluster.kill(dead)
        assert cluster.leader(other_than=dead) != dead
