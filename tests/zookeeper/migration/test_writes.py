"""Changes of the metadata as guarded writes of znodes in memory."""

import json

import pytest

from sparkraft.base.ids import Uuid
from sparkraft.metadata.apply import apply
from sparkraft.metadata.image import EMPTY_IMAGE
from sparkraft.protocol.messages import metadata_records as m
from sparkraft.server.env import SystemEntropy
from sparkraft.zookeeper.controller.steps import ControllerMovedError
from sparkraft.zookeeper.migration import ruling
from sparkraft.zookeeper.migration.records import batches_of
from sparkraft.zookeeper.migration.tree import ZnodeTree
from sparkraft.zookeeper.migration.writes import changes_between
from sparkraft.zookeeper.requests import Delete
from tests.zookeeper.controller.cluster import Cluster
from tests.zookeeper.migration.trees import tree_of

KRAFT_EPOCH = 5


class Migration(Cluster):
    """The recorded znodes, and a KRaft controller that has taken /controller."""

    def __init__(self) -> None:
        super().__init__()
        tree = tree_of(without=("/kafka-acl-changes", "/kafka-acl-extended-changes"))
        for path in tree:
            node = tree.get(path)
            assert node is not None
            if self.has(path):
                self.set(path, node.data)
            else:
                self.make(path, node.data)
        self.image = self.image_of()
        rule = self.run(ruling.claim(3000, KRAFT_EPOCH, 1))
        assert rule is not None
        self.rule = rule
        self.take()

    def has(self, path: str) -> bool:
        return path in self.tree()

    def tree(self) -> ZnodeTree:
        tree = ZnodeTree()

        def add(path: str) -> None:
            node = self.znodes.get(path)
            if path != "/":
                tree.add(path, node.data, node.version)
            for name in sorted(node.children):
                add(f"{path.rstrip('/')}/{name}")

        add("/")
        return tree

    def image_of(self):
        image = EMPTY_IMAGE
        for batch in batches_of(self.tree(), SystemEntropy()):
            for record, _ in batch:
                image = apply(image, record)
        return image

    def take(self) -> list[str]:
        taken, self.writes = self.writes, []
        return taken

    def apply(self, *records: object) -> list[str]:
        """Write what the records change; return the writes of znodes other than the guards."""
        after = self.image
        for record in records:
            after = apply(after, record)
        changes = changes_between(self.image, after, None, KRAFT_EPOCH)
        self.run(ruling.write(self.rule, changes))
        self.image = after
        return self.take()

    def rewrite_migration(self) -> None:
        """Write /migration as another controller: its version is the next one."""
        self.set("/migration", self.znodes.get("/migration").data + b" ")

    def data(self, path: str):
        return json.loads(self.znodes.get(path).data)


def uuid(number: int) -> Uuid:
    return Uuid(number.to_bytes(16, "big"))


T1 = Uuid.parse("tCd6H9mrR6y44P05yz6EbQ")
NEW = (
    m.TopicRecord(name="new", topic_id=uuid(7)),
    m.PartitionRecord(
        topic_id=uuid(7), partition_id=0, replicas=[1, 2], isr=[1, 2], leader=1, leader_epoch=0,
        partition_epoch=0,
    ),
)  # fmt: skip
CONFIG = m.ConfigRecord(resource_type=2, resource_name="new", name="retention.ms", value="9")


@pytest.fixture
def migration() -> Migration:
    return Migration()


def test_equal_images_need_no_write(migration):
    assert migration.apply() == []
    assert list(changes_between(migration.image, migration.image_of(), None, 1)) == []


def test_a_new_topic_is_created_with_its_configs(migration):
    assert migration.apply(*NEW, CONFIG) == [
        "Create /brokers/topics/new",
        "Create /config/topics/new",
        "Create /brokers/topics/new/partitions",
        "Create /brokers/topics/new/partitions/0",
        "Create /brokers/topics/new/partitions/0/state",
    ]
    assert migration.data("/config/topics/new")["config"] == {"retention.ms": "9"}
    assert migration.data("/brokers/topics/new/partitions/0/state") == {
        "controller_epoch": KRAFT_EPOCH,
        "leader": 1,
        "version": 1,
        "leader_epoch": 0,
        "isr": [1, 2],
    }
    assert migration.image_of().topic("new") is not None


def test_writes_that_a_lost_reply_repeats_do_no_harm(migration):
    migration.repeat_writes = True
    migration.apply(*NEW, CONFIG)
    migration.apply(m.RemoveTopicRecord(topic_id=uuid(7)))
    assert not migration.has("/brokers/topics/new")


def test_a_changed_partition_is_one_write(migration):
    change = m.PartitionChangeRecord(topic_id=T1, partition_id=2, isr=[2, 1])
    assert migration.apply(change) == ["SetData /brokers/topics/t1/partitions/2/state"]
    assert migration.data("/brokers/topics/t1/partitions/2/state")["isr"] == [2, 1]


def test_a_reassignment_changes_the_topic_too(migration):
    change = m.PartitionChangeRecord(
        topic_id=T1, partition_id=2, replicas=[3, 1, 2], adding_replicas=[3], isr=[2, 1]
    )
    assert migration.apply(change) == [
        "SetData /brokers/topics/t1",
        "SetData /brokers/topics/t1/partitions/2/state",
    ]
    assert migration.data("/brokers/topics/t1")["adding_replicas"] == {"2": [3]}


def test_more_partitions_of_a_topic(migration):
    record = m.PartitionRecord(
        topic_id=T1, partition_id=3, replicas=[1], isr=[1], leader=1, leader_epoch=0,
        partition_epoch=0,
    )  # fmt: skip
    assert migration.apply(record) == [
        "SetData /brokers/topics/t1",
        "Create /brokers/topics/t1/partitions/3",
        "Create /brokers/topics/t1/partitions/3/state",
    ]


def test_a_deleted_topic_leaves_nothing(migration):
    migration.apply(m.RemoveTopicRecord(topic_id=T1))
    assert not migration.has("/brokers/topics/t1")
    assert not migration.has("/config/topics/t1")


def test_a_topic_that_was_deleted_and_created_again_is_written_after_its_deletion(migration):
    again = m.TopicRecord(name="t1", topic_id=uuid(8))
    migration.apply(m.RemoveTopicRecord(topic_id=T1), again)
    assert migration.data("/brokers/topics/t1")["topic_id"] == str(uuid(8))


def test_configs_are_written_whole_and_notified(migration):
    def config(kind: int, name: str, key: str, value: str | None) -> m.ConfigRecord:
        return m.ConfigRecord(resource_type=kind, resource_name=name, name=key, value=value)

    written = migration.apply(
        config(2, "t1", "retention.ms", "5"),
        config(4, "", "log.retention.ms", None),
        config(4, "2", "log.cleaner.threads", "3"),
        config(16, "metrics", "interval.ms", "5000"),
    )
    assert written == [
        "SetData /config/topics/t1",
        "Delete /config/brokers/<default>",
        "Create /config/brokers/2",
    ]
    assert migration.data("/config/topics/t1")["config"]["max.message.bytes"] == "2000000"
    changes = sorted(migration.znodes.get("/config/changes").children)
    entities = [migration.data(f"/config/changes/{name}")["entity_path"] for name in changes]
    assert sorted(entities) == ["brokers/2", "brokers/<default>", "topics/t1"]


def test_quotas_and_credentials_share_the_znode_of_a_user(migration):
    def quota(key: str, value: float, *entity: tuple[str, str | None]) -> m.ClientQuotaRecord:
        parts = [m.EntityData(entity_type=kind, entity_name=name) for kind, name in entity]
        return m.ClientQuotaRecord(entity=parts, key=key, value=value)

    before = migration.data("/config/users/alice")["config"]
    written = migration.apply(
        quota("producer_byte_rate", 2048.0, ("user", "alice")),
        quota("request_percentage", 12.5, ("user", "a b*~"), ("client-id", None)),
        quota("connection_creation_rate", 7.0, ("ip", None)),
    )
    assert sorted(written) == [
        "Create /config/ips/<default>",
        "Create /config/users/a%20b%2A%7E/clients/<default>",
        "SetData /config/users/alice",
    ]
    assert migration.data("/config/users/alice")["config"] == {
        **before,
        "producer_byte_rate": "2048",
    }
    removed = m.RemoveUserScramCredentialRecord(name="alice", mechanism=1)
    assert migration.apply(removed) == ["SetData /config/users/alice"]
    assert migration.data("/config/users/alice")["config"] == {
        "producer_byte_rate": "2048",
        "request_percentage": "50.0",
    }


def test_producer_ids_read_back_as_the_same(migration):
    record = m.ProducerIdsRecord(broker_id=2, broker_epoch=1, next_producer_id=9000)
    assert migration.apply(record) == ["SetData /latest_producer_id_block"]
    assert migration.image_of().next_producer_id == 9000


def acl(number: int, *, name: str = "t1", kind: int = 2, pattern: int = 3, operation: int = 3):
    return m.AccessControlEntryRecord(
        id=uuid(number), resource_type=kind, resource_name=name, pattern_type=pattern,
        principal="User:carol", host="*", operation=operation, permission_type=3,
    )  # fmt: skip


def test_entries_of_a_resource_are_written_whole_and_notified(migration):
    written = migration.apply(
        acl(1, operation=11), acl(2, kind=5, name="tx-", pattern=4), acl(3, kind=3, name="g")
    )
    assert sorted(written) == [
        "Create /kafka-acl-extended/prefixed/TransactionalId/tx-",
        "Create /kafka-acl/Group/g",
        "SetData /kafka-acl/Topic/t1",
    ]
    entries = migration.data("/kafka-acl/Topic/t1")["acls"]
    assert sorted(each["operation"] for each in entries) == ["AlterConfigs", "Read"]
    assert migration.znodes.get("/kafka-acl-changes").children
    (notice,) = migration.znodes.get("/kafka-acl-extended-changes").children
    assert migration.data(f"/kafka-acl-extended-changes/{notice}") == {
        "version": 1,
        "resourceType": "TRANSACTIONAL_ID",
        "name": "tx-",
        "patternType": "PREFIXED",
    }
    names = sorted(migration.znodes.get("/kafka-acl-changes").children)
    texts = [migration.znodes.get(f"/kafka-acl-changes/{name}").data for name in names]
    assert sorted(texts) == [b"GROUP:g", b"TOPIC:t1"]
    assert {*migration.image_of().acls.values()} == {*migration.image.acls.values()}
    assert migration.apply(m.RemoveAccessControlEntryRecord(id=uuid(3))) == [
        "Delete /kafka-acl/Group/g"
    ]


def test_delegation_tokens_are_written_and_removed(migration):
    token = m.DelegationTokenRecord(
        owner="User:a b", requester="User:admin", renewers=["User:alice"], issue_timestamp=1,
        max_timestamp=3, expiration_timestamp=2, token_id="new",
    )  # fmt: skip
    assert migration.apply(token) == ["Create /delegation_token/tokens/new"]
    assert migration.data("/delegation_token/tokens/new")["owner"] == "User%3Aa%20b"
    assert migration.image_of().delegation_tokens["new"] == migration.image.delegation_tokens["new"]
    removed = m.RemoveDelegationTokenRecord(token_id="0A2pX07CToq_4vbBzIk2cw")
    assert migration.apply(removed) == ["Delete /delegation_token/tokens/0A2pX07CToq_4vbBzIk2cw"]


# ---- who rules


def test_the_claim_replaces_the_znode_of_a_broker():
    migration = Migration()
    assert migration.data("/controller") == {
        "version": 2,
        "brokerid": 3000,
        "timestamp": "1",
        "kraftControllerEpoch": KRAFT_EPOCH,
    }
    assert migration.znodes.get("/controller").stat().ephemeral_owner == 0
    assert migration.rule.epoch == 8
    assert migration.data("/migration")["kraft_controller_id"] == 3000
    assert migration.run(ruling.is_copied()), "a KRaft controller rules"
    rule = migration.run(ruling.record_offset(migration.rule, 122, KRAFT_EPOCH))
    assert rule.migration.metadata_offset == 122
    assert migration.data("/migration")["kraft_metadata_offset"] == 122


def test_a_claim_that_is_repeated_goes_on():
    migration = Migration()
    again = migration.run(ruling.claim(3000, KRAFT_EPOCH, 2))
    assert again is not None
    assert again.epoch == migration.rule.epoch
    migration.rule = again
    assert migration.apply(*NEW)


def test_an_earlier_kraft_controller_cannot_take_over():
    migration = Migration()
    with pytest.raises(ControllerMovedError, match="KRaft controller 3000 of epoch 5 rules"):
        migration.run(ruling.claim(3001, KRAFT_EPOCH, 2))


def test_a_claim_overwrites_what_the_controller_before_wrote_meanwhile():
    """KAFKA-16171: it writes /migration until it notices that it does not rule any more."""
    migration = Migration()
    left = [lambda: None, migration.rewrite_migration]

    def before_write() -> None:
        """Before the claim, and before the write of /migration that follows it."""
        left.pop(0)()

    migration.before_write = before_write
    rule = migration.run(ruling.claim(3001, KRAFT_EPOCH + 1, 2))
    assert not left
    assert rule is not None
    assert migration.data("/migration")["kraft_controller_id"] == 3001


def test_a_claim_fails_while_brokers_elect_another():
    migration = Migration()
    migration.znodes.apply(Delete(path="/controller"), 0, 0)

    def elect_another() -> None:
        migration.before_write = lambda: None
        migration.set("/controller_epoch", b"9")

    migration.before_write = elect_another
    assert migration.run(ruling.claim(3000, 6, 2)) is None


def test_nothing_is_written_after_a_later_claim():
    migration = Migration()
    later = migration.run(ruling.claim(3001, KRAFT_EPOCH + 1, 2))
    assert later is not None
    migration.take()
    with pytest.raises(ControllerMovedError, match="has written /controller_epoch"):
        migration.apply(*NEW)
    with pytest.raises(ControllerMovedError):
        migration.run(ruling.record_offset(migration.rule, 5, 5))
    assert migration.take() == []


def test_another_writer_of_migration_is_noticed():
    migration = Migration()
    migration.rewrite_migration()
    with pytest.raises(ControllerMovedError, match="has written /migration"):
        migration.apply(*NEW)


def test_an_offset_whose_reply_was_lost_is_found_again():
    migration = Migration()
    migration.repeat_writes = True
    rule = migration.run(ruling.record_offset(migration.rule, 122, KRAFT_EPOCH))
    migration.repeat_writes = False
    migration.rule = migration.run(ruling.record_offset(rule, 123, KRAFT_EPOCH))
    assert migration.apply(*NEW)
