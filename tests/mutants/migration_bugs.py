"""Planted bugs of the migration from ZooKeeper that a test of one rule reports.

They are bugs that Apache Kafka had (KIP-866). The simulator has no quotas, tokens or producer ids
during a migration, and no broker that fails in one; what it finds is in `migration_mutants`.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from sparkraft.server.zookeeper_node import ZooKeeperNode
from sparkraft.zookeeper.migration import propagation, records, ruling, writes
from sparkraft.zookeeper.migration.tree import ZnodeTree
from sparkraft.zookeeper.znodes.cluster import PRODUCER_IDS
from sparkraft.zookeeper.znodes.topics import TOPICS
from tests.mutants.mutant import Patches
from tests.mutants.scenario_bugs import ScenarioBug

MIGRATION_BUGS: dict[str, ScenarioBug] = {}

_RECORDS = "zookeeper/migration/test_records.py::"
_WRITES = "zookeeper/migration/test_writes.py::"
_REQUESTS = "zookeeper/migration/test_propagation.py::"
_BROKERS = "zookeeper/migration/test_own_brokers_in_one_loop.py::"


def _plant(about: str, test: str) -> Callable[[Callable[[], Patches]], Callable[[], Patches]]:
    def register(patches: Callable[[], Patches]) -> Callable[[], Patches]:
        name = patches.__name__.strip("_").replace("_", "-")
        MIGRATION_BUGS[name] = ScenarioBug(about=about, test=test, patches=patches)
        return patches

    return register


# ---- the copy


@_plant("the last block of producer ids is given again", _RECORDS + "test_they_are_those_of_kafka")
def _kafka_15552_producer_ids_are_given_again() -> Patches:
    original = records._producer_ids

    def producer_ids(tree: ZnodeTree) -> Any:
        found = original(tree)
        for record, _ in found:
            record.next_producer_id = tree.value(PRODUCER_IDS).first
        return found

    return [(records, "_producer_ids", producer_ids)]


@_plant(
    "a topic that is about to be deleted is copied",
    _RECORDS + "test_a_topic_about_to_be_deleted_is_not_copied",
)
def _kafka_15605_pending_deletions_are_copied() -> Patches:
    return [(records, "topics_to_copy", lambda tree: tree.children(TOPICS))]


@_plant(
    "the default of a quota is copied as an entity of that name",
    _RECORDS + "test_they_are_those_of_kafka",
)
def _kafka_16411_default_quotas_are_named() -> Patches:
    original = records._part

    def part(kind: str, name: str) -> Any:
        found = original(kind, name)
        found.entity_name = found.entity_name or name
        return found

    return [(records, "_part", part)]


# ---- dual write


@_plant(
    "a claim checks the version of /migration that it has read before",
    _WRITES + "test_a_claim_overwrites_what_the_controller_before_wrote_meanwhile",
)
def _kafka_16171_the_first_write_checks_migration() -> Patches:
    original = ruling._set_migration

    def set_migration(rule: ruling.Rule) -> Any:
        if rule.migration_version < 0:
            _, version = yield from ruling.recover()
            rule = replace(rule, migration_version=version)
        return (yield from original(rule))

    return [(ruling, "_set_migration", set_migration)]


@_plant(
    "changed assignments are not written", _WRITES + "test_a_reassignment_changes_the_topic_too"
)
def _kafka_15003_assignments_are_not_written() -> Patches:
    return [(writes, "_is_reassigned", lambda _old, _new: False)]


@_plant("changed configs are not written", _WRITES + "test_configs_are_written_whole_and_notified")
def _kafka_15004_configs_are_not_written() -> Patches:
    return [(writes, "_configs", lambda _before, _after: ())]


@_plant(
    "brokers are not notified of changed configs",
    _WRITES + "test_configs_are_written_whole_and_notified",
)
def _kafka_16428_changed_configs_have_no_notice() -> Patches:
    return [(writes, "_config_notice", lambda _entity: None)]


@_plant(
    "the quotas of a user replace its credentials",
    _WRITES + "test_quotas_and_credentials_share_the_znode_of_a_user",
)
def _kafka_14970_quotas_replace_credentials() -> Patches:
    original = writes._values_of

    def values_of(image: Any, entity: Any) -> dict[str, str]:
        found = original(image, entity)
        return {key: value for key, value in found.items() if not key.startswith("SCRAM")}

    return [(writes, "_values_of", values_of)]


# ---- requests to brokers


@_plant(
    "replicas that a reassignment removed stay on their brokers",
    _REQUESTS + "test_a_removed_replica_is_deleted_with_the_present_leader_epoch",
)
def _kafka_16120_removed_replicas_stay() -> Patches:
    return [(propagation._Batch, "add_removed", lambda *_: None)]


@_plant(
    "partitions that a topic did not have before are not sent",
    _REQUESTS + "test_more_partitions_of_a_topic_are_sent",
)
def _kafka_15149_new_partitions_are_not_sent() -> Patches:
    original = propagation._changed_topics

    def changed_topics(before: Any, image: Any, topics: Any, epoch: int) -> Any:
        for topic_id, known in before.topics_by_id.items():
            topic = image.topics_by_id.get(topic_id)
            if topic is not None:
                kept = topic.partitions
                for index in topic.partitions:
                    kept = kept if index in known.partitions else kept.delete(index)
                topic = topic._replace(partitions=kept)
                image = image._replace(topics_by_id=image.topics_by_id.set(topic_id, topic))
        return original(before, image, topics, epoch)

    return [(propagation, "_changed_topics", changed_topics)]


# ---- brokers


@_plant(
    "a migrating broker continues with the log directories that are left",
    _BROKERS + "test_a_migrating_broker_stops_when_a_log_directory_fails",
)
def _kafka_16431_failed_directories_are_left_out() -> Patches:
    return [(ZooKeeperNode, "_needs_directory", lambda _self, _log_dir: False)]
