"""The table of decisions: API key to the function that decides its requests."""

from collections.abc import Callable
from typing import Any

from sparkraft.controller import (
    acls,
    brokers,
    client_quotas,
    configs,
    delegation_tokens,
    feature_updates,
    producer_ids,
    reassignment,
    replication,
    scram,
    topics,
)
from sparkraft.controller.call import Call
from sparkraft.controller.decision import Decision
from sparkraft.controller.decision_context import DecisionContext
from sparkraft.controller.steps import Steps
from sparkraft.protocol.api_keys import ApiKey

Decide = Callable[[DecisionContext, Call[Any]], Decision | Steps[Decision]]
"""Decides a request on the context's image, at once or in pieces; may raise `KafkaError` to reject
all of it.

A decision function writes no state but `DecisionContext.sessions`. Its own signature names the
request's message class.
"""

DECISIONS: dict[ApiKey, Decide] = {
    ApiKey.CREATE_TOPICS: topics.create_topics,
    ApiKey.DELETE_TOPICS: topics.delete_topics,
    ApiKey.CREATE_ACLS: acls.create_acls,
    ApiKey.DELETE_ACLS: acls.delete_acls,
    ApiKey.ALTER_CONFIGS: configs.alter_configs,
    ApiKey.CREATE_PARTITIONS: topics.create_partitions,
    ApiKey.CREATE_DELEGATION_TOKEN: delegation_tokens.create_delegation_token,
    ApiKey.RENEW_DELEGATION_TOKEN: delegation_tokens.renew_delegation_token,
    ApiKey.EXPIRE_DELEGATION_TOKEN: delegation_tokens.expire_delegation_token,
    ApiKey.ELECT_LEADERS: replication.elect_leaders,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: configs.incremental_alter_configs,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: reassignment.alter_partition_reassignments,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: reassignment.list_partition_reassignments,
    ApiKey.ALTER_CLIENT_QUOTAS: client_quotas.alter_client_quotas,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: scram.alter_user_scram_credentials,
    ApiKey.ALTER_PARTITION: replication.alter_partition,
    ApiKey.UPDATE_FEATURES: feature_updates.update_features,
    ApiKey.BROKER_REGISTRATION: brokers.register_broker,
    ApiKey.BROKER_HEARTBEAT: brokers.broker_heartbeat,
    ApiKey.UNREGISTER_BROKER: brokers.unregister_broker,
    ApiKey.ALLOCATE_PRODUCER_IDS: producer_ids.allocate_producer_ids,
    ApiKey.CONTROLLER_REGISTRATION: brokers.register_controller,
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: replication.assign_replicas_to_dirs,
}
"""One line per key, sorted by key."""
