"""Brokers of ours in ZooKeeper mode leave ZooKeeper under KRaft controllers (KIP-866)."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from sparkraft.security.standard_authorizer import CLASS_NAME as STANDARD_AUTHORIZER
from sparkraft.zookeeper.requests import Delete, GetChildren
from tests.support.ports import wait_until
from tests.support.zookeeper import Ensemble, controller_of, submit
from tests.zookeeper.broker.test_mixed_cluster import states
from tests.zookeeper.load import (
    AdminLoad,
    GroupLoad,
    Load,
    TransactionLoad,
    read_all,
    retention_of,
)
from tests.zookeeper.migration.clusters import (
    CONTROLLER_ID,
    MigratingBroker,
    Quorum,
    check_conditions,
    status_of,
)
from tests.zookeeper.migration.test_migration import SECURED, allow, allowed

pytestmark = [pytest.mark.java, pytest.mark.real_clients]

PARTITIONS = 4
SECONDS = 120
MAY_CONTROL = {"sparkraft.controllership.enable": "true"}

Brokers = dict[int, MigratingBroker]


@contextmanager
def cluster(
    jars: Path, folder: Path, ours: set[int], kafkas: set[int], overrides: Mapping[str, str] = {}
) -> Iterator[tuple[Ensemble, Brokers]]:
    """A running cluster in ZooKeeper mode: brokers of both kinds, and topic `t`."""
    with ExitStack() as stack:
        ensemble = stack.enter_context(Ensemble(jars, folder))
        brokers = {
            each: MigratingBroker(
                folder / str(each),
                each,
                ensemble.connect,
                jars,
                {**overrides, **(MAY_CONTROL if each in ours else {})},
                is_ours=each in ours,
            )
            for each in sorted(ours | kafkas)
        }
        for broker in brokers.values():
            stack.enter_context(broker)
        admin = AdminClient({"bootstrap.servers": bootstrap_of(brokers)})
        wait_until(
            lambda: len(admin.list_topics(timeout=10).brokers) == len(brokers), "all", SECONDS
        )
        replicas = sorted(brokers)
        rotated = [[*replicas[at % 3 :], *replicas[: at % 3]] for at in range(PARTITIONS)]
        settings = {"min.insync.replicas": str(max(1, len(brokers) - 1)), "segment.ms": "777777"}
        topic = NewTopic("t", PARTITIONS, replica_assignment=rotated, config=settings)
        admin.create_topics([topic])["t"].result(SECONDS)
        check_conditions(ensemble.connect)
        yield ensemble, brokers


def bootstrap_of(brokers: Brokers) -> str:
    return ",".join(each.bootstrap for each in brokers.values())


def wait_until_whole(brokers: Brokers) -> None:
    """All replicas of `t` are in sync, as any broker sees it."""

    def whole() -> bool:
        seen = states(bootstrap_of(brokers), "t")
        return len(seen) == PARTITIONS and all(
            leader > 0 and len(isr) == len(brokers) for leader, isr in seen.values()
        )

    wait_until(whole, "all replicas are in sync", SECONDS)


def wait_for_stage(ensemble: Ensemble, stage: str, quorum: Quorum) -> None:
    wait_until(lambda: status_of(ensemble.connect)["stage"] == stage, quorum.output_tail(), SECONDS)


def migrate(
    ensemble: Ensemble,
    brokers: Brokers,
    quorum: Quorum,
    *,
    kill_active: bool,
    kill_in_dual_write: bool = False,
) -> None:
    """All of the operator's steps; the controllers run already.

    The active controller is killed while all brokers are in ZooKeeper mode, and when the first one
    is in KRaft mode.
    """
    wait_for_stage(ensemble, "waiting", quorum)
    for broker in brokers.values():
        broker.join(quorum)
        wait_until_whole(brokers)
    wait_for_stage(ensemble, "dual write", quorum)
    if kill_in_dual_write:
        kill_the_active_controller(quorum)
        wait_until_whole(brokers)
    for number, broker in enumerate(brokers.values()):
        if number == 1 and kill_active:
            kill_the_active_controller(quorum)
        broker.leave_zookeeper()
        wait_until_whole(brokers)
    wait_for_stage(ensemble, "kraft brokers", quorum)
    quorum.restart(migrates=False)
    # Finalized: ZooKeeper is not written from here on.
    admin = AdminClient({"bootstrap.servers": bootstrap_of(brokers)})
    admin.create_topics([NewTopic("last", 1, 1)])["last"].result(SECONDS)
    names, _ = submit(ensemble.connect, GetChildren(path="/brokers/topics"))
    assert "t" in names
    assert "last" not in names


def kill_the_active_controller(quorum: Quorum) -> None:
    """Kill it, wait until another one has taken over, and start it again."""
    killed = quorum.active()
    killed.kill()
    wait_until(lambda: quorum.active() is not killed, "another controller", SECONDS)
    killed.start()


@contextmanager
def under_load(brokers: Brokers) -> Iterator[None]:
    """Records and topics are written meanwhile; nothing that was acknowledged is lost."""
    load = Load(bootstrap_of(brokers), PARTITIONS)
    admin_load = AdminLoad(bootstrap_of(brokers), len(brokers))
    try:
        yield
    finally:
        admin_load.end()
        load.end()
    check(brokers, load, admin_load)


def check(brokers: Brokers, load: Load, admin_load: AdminLoad) -> None:
    """Nothing that was acknowledged is lost."""
    acknowledged = load.acknowledged
    assert len(acknowledged) > 100
    found = read_all(bootstrap_of(brokers), len(acknowledged))
    assert acknowledged <= set(found), f"lost: {sorted(acknowledged - set(found))[:10]}"
    assert len(found) == len(set(found)), "idempotent producers write no record twice"
    admin = AdminClient({"bootstrap.servers": bootstrap_of(brokers)})
    present = set(admin.list_topics(timeout=SECONDS).topics)
    assert not present & admin_load.deleted
    expected = {
        name: value
        for name, value in admin_load.topics.items()
        if name not in admin_load.deleted and value
    }
    kept = {name: value for name, value in expected.items() if name in present}
    # A deletion may have been carried out although its response was lost.
    assert all(int(name.partition("-")[2]) % 4 == 0 for name in expected.keys() - kept.keys())
    assert len(kept) > 5, admin_load.failures
    assert retention_of(admin, sorted(kept)) == kept


def test_brokers_of_ours_leave_zookeeper_while_the_active_controller_is_killed(
    zookeeper_jars: Path, tmp_path: Path
):
    with (
        cluster(zookeeper_jars, tmp_path, {1, 2}, set()) as (ensemble, brokers),
        Quorum(tmp_path / "quorum", ensemble.connect, 3) as quorum,
        under_load(brokers),
    ):
        migrate(ensemble, brokers, quorum, kill_active=True)


@pytest.mark.long  # the test above stays; this one has brokers of both kinds
@pytest.mark.parametrize("ours", [{1}, {2, 3}])
def test_brokers_of_both_kinds_leave_zookeeper(
    zookeeper_jars: Path, tmp_path: Path, ours: set[int]
):
    kafkas = {1, 2, 3} - ours
    with (
        cluster(zookeeper_jars, tmp_path, ours, kafkas) as (ensemble, brokers),
        Quorum(tmp_path / "quorum", ensemble.connect, 3) as quorum,
        under_load(brokers),
    ):
        migrate(ensemble, brokers, quorum, kill_active=True)


@pytest.mark.long  # tests/zookeeper/broker have both on brokers of each kind
def test_transactions_and_groups_continue_through_a_migration(zookeeper_jars: Path, tmp_path: Path):
    with (
        cluster(zookeeper_jars, tmp_path, {1}, {2}) as (ensemble, brokers),
        Quorum(tmp_path / "quorum", ensemble.connect, 3) as quorum,
    ):
        admin = AdminClient({"bootstrap.servers": bootstrap_of(brokers)})
        admin.create_topics([NewTopic("x", 2, 2)])["x"].result(SECONDS)
        load = Load(bootstrap_of(brokers), PARTITIONS)
        group = GroupLoad(bootstrap_of(brokers))
        transactions = TransactionLoad(bootstrap_of(brokers))
        try:
            migrate(ensemble, brokers, quorum, kill_active=True)
        finally:
            transactions.end()
            group.end(load.end())
        assert len(transactions.committed) > 20
        assert len(transactions.aborted) > 10
        transactions.check()


@pytest.mark.long  # the first test stays; this one has more faults
def test_faults_during_dual_write_lose_nothing(zookeeper_jars: Path, tmp_path: Path):
    """A broker, the active controller, all controllers and ZooKeeper end, one after another."""
    with (
        cluster(zookeeper_jars, tmp_path, {1, 2, 3}, set()) as (ensemble, brokers),
        Quorum(tmp_path / "quorum", ensemble.connect, 3) as quorum,
        under_load(brokers),
    ):
        for broker in brokers.values():
            broker.join(quorum)
            wait_until_whole(brokers)
        wait_for_stage(ensemble, "dual write", quorum)
        brokers[2].kill()
        wait_until(lambda: not is_registered(ensemble, 2), "the session of 2 expires", SECONDS)
        brokers[2].start()
        wait_until_whole(brokers)
        kill_the_active_controller(quorum)
        for node in quorum.nodes.values():
            node.kill()
        for node in quorum.nodes.values():
            node.launch()
        wait_until_whole(brokers)
        (server,) = ensemble.servers
        server.kill()
        server.start()
        server.wait_until_it_serves()
        wait_until_whole(brokers)
        for broker in brokers.values():
            broker.leave_zookeeper()
            wait_until_whole(brokers)
        wait_for_stage(ensemble, "kraft brokers", quorum)
        quorum.restart(migrates=False)
        wait_until_whole(brokers)


def is_registered(ensemble: Ensemble, broker: int) -> bool:
    """Whether the broker has a session in ZooKeeper mode."""
    names, _ = submit(ensemble.connect, GetChildren(path="/brokers/ids"))
    return str(broker) in names


@pytest.mark.long  # tests with controllers of ours stay
@pytest.mark.parametrize("size", [1, 3])
def test_controllers_of_kafka_migrate_brokers_of_ours(
    zookeeper_jars: Path, tmp_path: Path, size: int
):
    """One controller; and three, of which the active one is killed twice on the way."""
    is_quorum = size > 1
    with (
        cluster(zookeeper_jars, tmp_path, {1, 2}, set()) as (ensemble, brokers),
        Quorum(tmp_path / "quorum", ensemble.connect, size, kafka_jars=zookeeper_jars) as quorum,
        under_load(brokers),
    ):
        migrate(ensemble, brokers, quorum, kill_active=is_quorum, kill_in_dual_write=is_quorum)


@pytest.mark.long  # the test of test_migration.py with a secured broker of Kafka stays
def test_a_secured_cluster_of_ours_leaves_zookeeper(zookeeper_jars: Path, tmp_path: Path):
    """Access control entries and SCRAM credentials, made in each stage."""
    with (
        cluster(zookeeper_jars, tmp_path, {1, 2}, set(), SECURED) as (ensemble, brokers),
        Quorum(
            tmp_path / "quorum",
            ensemble.connect,
            1,
            overrides={**SECURED, "authorizer.class.name": STANDARD_AUTHORIZER},
        ) as quorum,
    ):
        made = Secrets(brokers)
        made.add("zookeeper")
        for broker in brokers.values():
            broker.join(quorum)
            wait_until_whole(brokers)
        wait_for_stage(ensemble, "dual write", quorum)
        made.add("dual write")
        brokers[1].leave_zookeeper()
        wait_until_whole(brokers)
        made.add("both modes")
        brokers[2].leave_zookeeper()
        wait_until_whole(brokers)
        quorum.restart(migrates=False)
        made.add("kraft")
        made.check()


class Secrets:
    """Entries and credentials, one of each for a stage, in the cluster of some brokers."""

    def __init__(self, brokers: Brokers) -> None:
        self._bootstrap = bootstrap_of(brokers)
        self._users: list[str] = []

    def add(self, stage: str) -> None:
        user = stage.replace(" ", "-")
        admin = AdminClient({"bootstrap.servers": self._bootstrap})
        admin.list_topics(timeout=SECONDS)
        allow(admin, f"User:{user}", "t")
        credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
        change = UserScramCredentialUpsertion(user, credential, b"secret")
        admin.alter_user_scram_credentials([change])[user].result(SECONDS)
        self._users.append(user)
        wait_until(lambda: self._is_known(user), f"{user} is known", SECONDS)

    def _is_known(self, user: str) -> bool:
        admin = AdminClient({"bootstrap.servers": self._bootstrap})
        return (f"User:{user}", "t") in allowed(admin)

    def check(self) -> None:
        admin = AdminClient({"bootstrap.servers": self._bootstrap})
        assert allowed(admin) == {(f"User:{user}", "t") for user in self._users}
        described = admin.describe_user_scram_credentials(self._users)
        for user in self._users:
            (info,) = described[user].result(SECONDS).scram_credential_infos
            assert info.iterations == 4096


@pytest.mark.long  # test_own_brokers_in_one_loop.py has the roll-back of the last stage, and stays
@pytest.mark.parametrize("stage", ["waiting", "dual write", "kraft brokers"])
def test_a_migration_is_rolled_back_from_each_stage(
    zookeeper_jars: Path, tmp_path: Path, stage: str
):
    """The operator's steps in docs/ZOOKEEPER.md; one broker of each kind."""
    with (
        cluster(zookeeper_jars, tmp_path, {1}, {2}) as (ensemble, brokers),
        Quorum(tmp_path / "quorum", ensemble.connect, 1) as quorum,
    ):
        with under_load(brokers):
            wait_for_stage(ensemble, "waiting", quorum)
            joining = [brokers[1]] if stage == "waiting" else list(brokers.values())
            for broker in joining:
                broker.join(quorum)
                wait_until_whole(brokers)
            wait_for_stage(ensemble, "waiting" if stage == "waiting" else "dual write", quorum)
            if stage == "kraft brokers":
                for broker in brokers.values():
                    broker.leave_zookeeper()
                    wait_until_whole(brokers)
                wait_for_stage(ensemble, stage, quorum)
                for broker in brokers.values():
                    broker.return_to_zookeeper(migrates=True)
                    wait_until_whole(brokers)
            quorum.stop()
            for path in ("/controller", "/migration"):
                if path != "/controller" or controller_of(ensemble.connect)[0] == CONTROLLER_ID:
                    submit(ensemble.connect, Delete(path=path))
            wait_until(
                lambda: controller_of(ensemble.connect)[0] in brokers, "a broker rules", SECONDS
            )
            for broker in joining:
                wait_until_whole(brokers)
                broker.return_to_zookeeper(migrates=False)
            wait_until_whole(brokers)
        assert status_of(ensemble.connect)["stage"] == "zookeeper"
