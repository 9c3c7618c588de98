"""What the annotated hex files in `golden/` say, as messages."""

from sparkraft.base.ids import Uuid
from sparkraft.protocol.declare import Message
from sparkraft.protocol.messages import (
    k00_produce,
    k01_fetch,
    k03_metadata,
    k11_join_group,
    k18_api_versions,
    k52_vote,
    k59_fetch_snapshot,
    k62_broker_registration,
)

TOPIC_ID = Uuid(bytes(range(0x10, 0x20)))
DIRECTORY_ID = Uuid(bytes(range(0x30, 0x40)))
CLUSTER = "5L6g3nShT-eMCtK--X86sw"

BATCH = bytes.fromhex(
    "0000000000000000 0000003c 00000000 02 0c8205a1 0000 00000000"
    "0000018bcfe56800 0000018bcfe56800 ffffffffffffffff ffff ffffffff 00000001"
    "14 00 00 00 02 6b 06 76 61 6c 00"
)
"""A batch of one record with key "k" and value "val", as kafka-python writes it."""

GOLDEN: dict[str, tuple[Message, int]] = {
    "api_versions_request_v3": (
        k18_api_versions.ApiVersionsRequest(
            client_software_name="apache-kafka-java", client_software_version="4.3.1"
        ),
        3,
    ),
    "api_versions_response_v4": (
        k18_api_versions.ApiVersionsResponse(
            api_keys=[
                k18_api_versions.ApiVersion(api_key=0, min_version=3, max_version=13),
                k18_api_versions.ApiVersion(api_key=18, max_version=4),
            ],
            supported_features=[
                k18_api_versions.SupportedFeatureKey(
                    name="metadata.version", min_version=7, max_version=30
                )
            ],
            finalized_features_epoch=42,
            finalized_features=[
                k18_api_versions.FinalizedFeatureKey(
                    name="metadata.version", max_version_level=30, min_version_level=30
                )
            ],
        ),
        4,
    ),
    "produce_request_v3": (
        k00_produce.ProduceRequest(
            acks=1,
            timeout_ms=30000,
            topic_data=[
                k00_produce.TopicProduceData(
                    name="flights",
                    partition_data=[k00_produce.PartitionProduceData(index=2, records=BATCH)],
                )
            ],
        ),
        3,
    ),
    "produce_request_v9": (
        k00_produce.ProduceRequest(
            acks=-1,
            timeout_ms=30000,
            topic_data=[
                k00_produce.TopicProduceData(
                    name="flights",
                    partition_data=[k00_produce.PartitionProduceData(index=2, records=BATCH)],
                )
            ],
        ),
        9,
    ),
    "produce_response_v10": (
        k00_produce.ProduceResponse(
            responses=[
                k00_produce.TopicProduceResponse(
                    name="flights",
                    partition_responses=[
                        k00_produce.PartitionProduceResponse(
                            index=0, base_offset=1234, log_start_offset=1000
                        ),
                        k00_produce.PartitionProduceResponse(
                            index=1,
                            error_code=6,
                            base_offset=-1,
                            error_message="not the leader",
                            current_leader=k00_produce.LeaderIdAndEpoch(
                                leader_id=3, leader_epoch=8
                            ),
                        ),
                        k00_produce.PartitionProduceResponse(
                            index=2,
                            error_code=87,
                            base_offset=-1,
                            record_errors=[
                                k00_produce.BatchIndexAndErrorMessage(
                                    batch_index=4, batch_index_error_message="no key"
                                )
                            ],
                        ),
                    ],
                )
            ],
            throttle_time_ms=5,
            node_endpoints=[k00_produce.NodeEndpoint(node_id=3, host="b3", port=9093)],
        ),
        10,
    ),
    "fetch_request_v4": (
        k01_fetch.FetchRequest(
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=0x3200000,
            topics=[
                k01_fetch.FetchTopic(
                    topic="flights",
                    partitions=[
                        k01_fetch.FetchPartition(
                            partition=1, fetch_offset=77, partition_max_bytes=0x100000
                        )
                    ],
                )
            ],
        ),
        4,
    ),
    "fetch_request_v18": (
        k01_fetch.FetchRequest(
            cluster_id=CLUSTER,
            replica_state=k01_fetch.ReplicaState(replica_id=2, replica_epoch=9),
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=0xA00000,
            isolation_level=1,
            session_id=7,
            session_epoch=3,
            topics=[
                k01_fetch.FetchTopic(
                    topic_id=TOPIC_ID,
                    partitions=[
                        k01_fetch.FetchPartition(
                            partition=1,
                            current_leader_epoch=5,
                            fetch_offset=77,
                            last_fetched_epoch=4,
                            log_start_offset=10,
                            partition_max_bytes=0x100000,
                            replica_directory_id=DIRECTORY_ID,
                            high_watermark=70,
                        )
                    ],
                )
            ],
            forgotten_topics_data=[k01_fetch.ForgottenTopic(topic_id=TOPIC_ID, partitions=[0, 3])],
            rack_id="r1",
        ),
        18,
    ),
    "fetch_response_v17": (
        k01_fetch.FetchResponse(
            session_id=7,
            responses=[
                k01_fetch.FetchableTopicResponse(
                    topic_id=TOPIC_ID,
                    partitions=[
                        k01_fetch.PartitionData(
                            partition_index=1,
                            high_watermark=80,
                            last_stable_offset=78,
                            log_start_offset=10,
                            aborted_transactions=[
                                k01_fetch.AbortedTransaction(producer_id=55, first_offset=77)
                            ],
                            records=BATCH,
                        ),
                        k01_fetch.PartitionData(
                            partition_index=2,
                            error_code=6,
                            high_watermark=-1,
                            diverging_epoch=k01_fetch.EpochEndOffset(epoch=4, end_offset=60),
                            current_leader=k01_fetch.LeaderIdAndEpoch(leader_id=3, leader_epoch=6),
                            snapshot_id=k01_fetch.SnapshotId(end_offset=50, epoch=2),
                            aborted_transactions=None,
                            records=None,
                        ),
                    ],
                )
            ],
            node_endpoints=[k01_fetch.NodeEndpoint(node_id=3, host="b3", port=9093, rack="r3")],
        ),
        17,
    ),
    "metadata_request_v1": (k03_metadata.MetadataRequest(topics=None), 1),
    "metadata_request_v12": (
        k03_metadata.MetadataRequest(
            topics=[
                k03_metadata.MetadataRequestTopic(name="flights"),
                k03_metadata.MetadataRequestTopic(topic_id=TOPIC_ID, name=None),
            ],
            include_topic_authorized_operations=True,
        ),
        12,
    ),
    "metadata_response_v12": (
        k03_metadata.MetadataResponse(
            brokers=[
                k03_metadata.MetadataResponseBroker(node_id=1, host="localhost", port=9092),
                k03_metadata.MetadataResponseBroker(node_id=2, host="b2", port=9093, rack="r2"),
            ],
            cluster_id=CLUSTER,
            controller_id=1,
            topics=[
                k03_metadata.MetadataResponseTopic(
                    name="flights",
                    topic_id=TOPIC_ID,
                    partitions=[
                        k03_metadata.MetadataResponsePartition(
                            partition_index=0,
                            leader_id=1,
                            leader_epoch=4,
                            replica_nodes=[1, 2],
                            isr_nodes=[1],
                            offline_replicas=[2],
                        )
                    ],
                ),
                k03_metadata.MetadataResponseTopic(error_code=3, name="absent"),
            ],
        ),
        12,
    ),
    "join_group_request_v9": (
        k11_join_group.JoinGroupRequest(
            group_id="delays",
            session_timeout_ms=45000,
            rebalance_timeout_ms=300000,
            member_id="consumer-1",
            group_instance_id="worker-1",
            protocol_type="consumer",
            protocols=[
                k11_join_group.JoinGroupRequestProtocol(name="range", metadata=b"\0\3\0\0"),
                k11_join_group.JoinGroupRequestProtocol(name="sticky", metadata=b""),
            ],
            reason="first start",
        ),
        9,
    ),
    "join_group_response_v9": (
        k11_join_group.JoinGroupResponse(
            generation_id=12,
            protocol_type="consumer",
            protocol_name="range",
            leader="consumer-1",
            skip_assignment=True,
            member_id="consumer-1",
            members=[
                k11_join_group.JoinGroupResponseMember(
                    member_id="consumer-1", group_instance_id="worker-1", metadata=b"\0\3"
                )
            ],
        ),
        9,
    ),
    "vote_request_v2": (
        k52_vote.VoteRequest(
            cluster_id=CLUSTER,
            voter_id=2,
            topics=[
                k52_vote.VoteRequestTopicData(
                    topic_name="__cluster_metadata",
                    partitions=[
                        k52_vote.VoteRequestPartitionData(
                            replica_epoch=5,
                            replica_id=1,
                            replica_directory_id=DIRECTORY_ID,
                            voter_directory_id=TOPIC_ID,
                            last_offset_epoch=4,
                            last_offset=321,
                            pre_vote=True,
                        )
                    ],
                )
            ],
        ),
        2,
    ),
    "vote_response_v2": (
        k52_vote.VoteResponse(
            topics=[
                k52_vote.VoteResponseTopicData(
                    topic_name="__cluster_metadata",
                    partitions=[
                        k52_vote.VoteResponsePartitionData(
                            leader_id=3, leader_epoch=5, vote_granted=True
                        )
                    ],
                )
            ],
            node_endpoints=[k52_vote.NodeEndpoint(node_id=3, host="c3", port=9095)],
        ),
        2,
    ),
    "fetch_snapshot_request_v1": (
        k59_fetch_snapshot.FetchSnapshotRequest(
            cluster_id=CLUSTER,
            replica_id=2,
            max_bytes=0x800000,
            topics=[
                k59_fetch_snapshot.FetchSnapshotRequestTopicSnapshot(
                    name="__cluster_metadata",
                    partitions=[
                        k59_fetch_snapshot.FetchSnapshotRequestPartitionSnapshot(
                            current_leader_epoch=5,
                            snapshot_id=k59_fetch_snapshot.SnapshotId(end_offset=300, epoch=4),
                            position=4096,
                            replica_directory_id=DIRECTORY_ID,
                        )
                    ],
                )
            ],
        ),
        1,
    ),
    "fetch_snapshot_response_v1": (
        k59_fetch_snapshot.FetchSnapshotResponse(
            topics=[
                k59_fetch_snapshot.FetchSnapshotResponseTopicSnapshot(
                    name="__cluster_metadata",
                    partitions=[
                        k59_fetch_snapshot.FetchSnapshotResponsePartitionSnapshot(
                            snapshot_id=k59_fetch_snapshot.SnapshotId(end_offset=300, epoch=4),
                            current_leader=k59_fetch_snapshot.LeaderIdAndEpoch(
                                leader_id=3, leader_epoch=5
                            ),
                            size=5000,
                            position=4096,
                            unaligned_records=b"half a batch",
                        )
                    ],
                )
            ],
            node_endpoints=[k59_fetch_snapshot.NodeEndpoint(node_id=3, host="c3", port=9095)],
        ),
        1,
    ),
    "broker_registration_request_v4": (
        k62_broker_registration.BrokerRegistrationRequest(
            broker_id=1,
            cluster_id=CLUSTER,
            incarnation_id=TOPIC_ID,
            listeners=[
                k62_broker_registration.Listener(
                    name="PLAINTEXT", host="localhost", port=9092, security_protocol=0
                )
            ],
            features=[
                k62_broker_registration.Feature(
                    name="metadata.version", min_supported_version=7, max_supported_version=30
                ),
                k62_broker_registration.Feature(
                    name="kraft.version", min_supported_version=0, max_supported_version=1
                ),
            ],
            rack="r1",
            log_dirs=[DIRECTORY_ID],
            previous_broker_epoch=17,
        ),
        4,
    ),
    "broker_registration_response_v4": (
        k62_broker_registration.BrokerRegistrationResponse(broker_epoch=18),
        4,
    ),
}
