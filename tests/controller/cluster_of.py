"""A controller driven by hand: decide, append, replay, commit, on a log that is a list."""

import random
from dataclasses import replace
from typing import Any

from sparkraft.base.ids import LeaderEpoch, Millis, Offset, Uuid
from sparkraft.base.steps import complete
from sparkraft.controller.activation import default_bootstrap
from sparkraft.controller.call import Call
from sparkraft.controller.controller import Controller
from sparkraft.controller.decision import Decision
from sparkraft.controller.decision_context import ControllerConfig
from sparkraft.metadata.features import SUPPORTED_FEATURES
from sparkraft.metadata.partition_state import PartitionState
from sparkraft.protocol.api_keys import API_INFO, ApiKey
from sparkraft.protocol.framing import decode_metadata_record, encode_metadata_record
from sparkraft.protocol.messages import k19_create_topics as k19
from sparkraft.protocol.messages import k44_incremental_alter_configs as k44
from sparkraft.protocol.messages import k56_alter_partition as k56
from sparkraft.protocol.messages import k57_update_features as k57
from sparkraft.protocol.messages import k62_broker_registration as k62
from sparkraft.protocol.messages import k63_broker_heartbeat as k63
from sparkraft.protocol.messages import k73_assign_replicas_to_dirs as k73

CLUSTER_ID = "sparkraft-test-cluster"


class Dice:
    """Seeded entropy."""

    def __init__(self, seed: int = 1) -> None:
        self._random = random.Random(seed)

    def random_bytes(self, count: int) -> bytes:
        return self._random.randbytes(count)

    def below(self, bound: int) -> int:
        return self._random.randrange(bound)


def uuid(number: int) -> Uuid:
    return Uuid(number.to_bytes(16, "big"))


class Cluster:
    """The controller, its log, and shorthands for what brokers and clients send it."""

    def __init__(self, *, seed: int = 1, bootstrap: Any = None, **config: Any) -> None:
        settings = ControllerConfig(cluster_id=CLUSTER_ID, node_id=1000, voter_ids=(1000,))
        self.config = replace(settings, **config)
        self.core = Controller(self.config, Dice(seed))
        self.log: list[tuple[list[Any], int]] = []
        self.now = Millis(1_000)
        self.epochs: dict[int, int] = {}
        self.incarnations = 0
        records = default_bootstrap() if bootstrap is None else bootstrap
        self.carry_out(self.core.activate(records, LeaderEpoch(1), self.now))

    @property
    def next_offset(self) -> int:
        return self.core.latest.offset + 1

    def carry_out(self, decision: Decision, *, commit: bool = True) -> Any:
        if decision.records:
            # Through the bytes of the log, in the version the decision chose.
            decoded = [
                decode_metadata_record(encode_metadata_record(record, version))[0]
                for record, version in decision.records
            ]
            base = self.next_offset
            last = base + len(decoded) - 1
            self.log.append((decoded, base))
            self.core.replay_appended(
                decoded, last_offset=last, epoch=1, elections=decision.elections
            )
            if commit:
                self.core.commit(last)
        return decision.response

    def ask(self, key: ApiKey, request: Any, *, commit: bool = True, **more: Any) -> Any:
        call = Call(
            request=request,
            now=self.now,
            **{
                "version": API_INFO[key].max_version,
                "next_offset": Offset(self.next_offset),
                **more,
            },
        )
        return self.carry_out(complete(self.core.decide(key, call)), commit=commit)

    def register(
        self, broker_id: int, *, rack: str | None = None, directories: int = 1, **fields: Any
    ) -> Any:
        self.incarnations += 1
        request = k62.BrokerRegistrationRequest(
            broker_id=broker_id,
            cluster_id=CLUSTER_ID,
            incarnation_id=uuid(10_000 + self.incarnations),
            listeners=[k62.Listener(name="PLAINTEXT", host="localhost", port=9092 + broker_id)],
            features=[
                k62.Feature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in SUPPORTED_FEATURES.items()
            ],
            rack=rack,
            log_dirs=[uuid(1000 * (broker_id + 1) + n) for n in range(directories)],
        )
        for name, value in fields.items():
            setattr(request, name, value)
        response = self.ask(ApiKey.BROKER_REGISTRATION, request)
        self.epochs[broker_id] = response.broker_epoch
        return response

    def heartbeat(self, broker_id: int, **fields: Any) -> Any:
        request = k63.BrokerHeartbeatRequest(
            broker_id=broker_id,
            broker_epoch=self.epochs[broker_id],
            current_metadata_offset=self.core.latest.offset,
        )
        for name, value in fields.items():
            setattr(request, name, value)
        return self.ask(ApiKey.BROKER_HEARTBEAT, request)

    def start(self, *broker_ids: int, **fields: Any) -> None:
        for broker_id in broker_ids:
            self.register(broker_id, **fields)
            self.heartbeat(broker_id)

    def fence(self, broker_id: int) -> None:
        self.heartbeat(broker_id, want_fence=True)

    def create(
        self,
        name: str,
        *,
        partitions: int = 1,
        replication: int = 1,
        replicas: list[list[int]] | None = None,
        **configs: str,
    ) -> k19.CreatableTopicResult:
        topic = k19.CreatableTopic(
            name=name,
            num_partitions=-1 if replicas else partitions,
            replication_factor=-1 if replicas else replication,
            assignments=[
                k19.CreatableReplicaAssignment(partition_index=i, broker_ids=ids)
                for i, ids in enumerate(replicas or [])
            ],
            configs=[
                k19.CreatableTopicConfig(name=key.replace("_", "."), value=value)
                for key, value in configs.items()
            ],
        )
        response = self.ask(ApiKey.CREATE_TOPICS, k19.CreateTopicsRequest(topics=[topic]))
        result: k19.CreatableTopicResult = response.topics[0]
        return result

    def partition(self, topic: str, index: int = 0) -> PartitionState:
        found = self.core.latest.topic(topic)
        assert found is not None
        return found.partitions[index]

    def ask_features(self, *, kind: int = 0, validate_only: bool = False, **levels: int) -> Any:
        updates = [
            k57.FeatureUpdateKey(
                feature=name,
                max_version_level=level,
                upgrade_type=kind or (1 if level > self.core.latest.features.get(name, 0) else 2),
            )
            for name, level in levels.items()
        ]
        request = k57.UpdateFeaturesRequest(feature_updates=updates, validate_only=validate_only)
        return self.ask(ApiKey.UPDATE_FEATURES, request)

    def assign(self, topic: str, broker_id: int, directory: Uuid, index: int = 0) -> Any:
        topic_id = self.core.latest.topics_by_name[topic]
        request = k73.AssignReplicasToDirsRequest(
            broker_id=broker_id,
            broker_epoch=self.epochs[broker_id],
            directories=[
                k73.AssignReplicasToDirsRequestDirectoryData(
                    id=directory,
                    topics=[
                        k73.AssignReplicasToDirsRequestTopicData(
                            topic_id=topic_id,
                            partitions=[
                                k73.AssignReplicasToDirsRequestPartitionData(partition_index=index)
                            ],
                        )
                    ],
                )
            ],
        )
        return self.ask(ApiKey.ASSIGN_REPLICAS_TO_DIRS, request)

    def alter_isr(
        self,
        topic: str,
        isr: list[int],
        *,
        index: int = 0,
        leader: int | None = None,
        **fields: Any,
    ) -> Any:
        """AlterPartition by the leader, with the partition's own epochs unless told otherwise."""
        partition = self.partition(topic, index)
        sender = partition.leader if leader is None else leader
        data = k56.AlterPartitionRequestPartitionData(
            partition_index=index,
            leader_epoch=partition.leader_epoch,
            partition_epoch=partition.partition_epoch,
            new_isr_with_epochs=[
                k56.BrokerState(broker_id=b, broker_epoch=self.epochs.get(b, -1)) for b in isr
            ],
        )
        for name, value in fields.items():
            setattr(data, name, value)
        request = k56.AlterPartitionRequest(
            broker_id=sender,
            broker_epoch=self.epochs[sender],
            topics=[
                k56.AlterPartitionRequestTopicData(
                    topic_id=self.core.latest.topics_by_name[topic], partitions=[data]
                )
            ],
        )
        return self.ask(ApiKey.ALTER_PARTITION, request).topics[0].partitions[0]

    def set_topic_config(self, topic: str, key: str, value: str | None) -> None:
        change = k44.AlterableConfig(
            name=key, config_operation=0 if value is not None else 1, value=value
        )
        resource = k44.AlterConfigsResource(resource_type=2, resource_name=topic, configs=[change])
        request = k44.IncrementalAlterConfigsRequest(resources=[resource])
        answer = self.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, request)
        assert answer.responses[0].error_code == 0
