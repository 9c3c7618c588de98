"""Each class of vulnerabilities that Apache Kafka and its clients had, by the numbers of its CVEs.

`PROVEN` names the test that shows that a class is absent here; those without one are below.
"""

import hmac
import re
from pathlib import Path
from typing import Any

import pytest

from sparkraft.base.errors import ErrorCode
from sparkraft.metadata.image import ScramCredential
from sparkraft.protocol.messages.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from sparkraft.security.acls import AclOperation, AclResourceType
from sparkraft.security.jaas import JaasError, parse_jaas
from sparkraft.security.plain import PlainServer
from sparkraft.security.sasl import SaslError
from sparkraft.security.scram import SHA_256, ScramClient, ScramServer, keys_of, salted_password
from sparkraft.security.secret import Secret
from sparkraft.server.config import ConfigError, NodeConfig
from tests.server.harness import (
    append,
    batch,
    config_of,
    connect,
    create_topic,
    fetch,
    node_in,
    run,
    values_of,
)
from tests.support.sessions import Deciding

TESTS = Path(__file__).parents[1]
HERE = "server/test_cve_classes.py"

PROVEN = {
    "CVE-2017-12610": "security/test_scram.py::test_an_authorization_id_must_be_the_user",
    "CVE-2018-1288": f"{HERE}::test_a_client_that_says_it_is_a_replica_reads_nothing",
    "CVE-2018-17196": f"{HERE}::test_no_part_of_a_produce_passes_without_the_transactional_id",
    "CVE-2021-38153": f"{HERE}::test_secrets_are_compared_in_constant_time",
    "CVE-2022-34917": (
        "server/test_connection.py::test_memory_for_a_large_frame_grows_only_as_it_arrives"
    ),
    "CVE-2023-25194": f"{HERE}::test_no_class_of_a_login_module_is_loaded",
    "CVE-2023-34455": "records/test_records.py::test_a_batch_inflates_only_to_its_bound",
    "CVE-2024-27309": (
        "security/test_standard_authorizer.py"
        "::test_decisions_are_those_of_a_scan_of_all_entries_after_any_changes"
    ),
    "CVE-2024-31141": f"{HERE}::test_no_value_of_a_config_names_a_file_to_read",
    "CVE-2024-56128": "security/test_scram.py::test_a_recorded_login_cannot_be_replayed",
    "CVE-2025-12183": "records/test_records.py::test_a_batch_inflates_only_to_its_bound",
    "CVE-2025-27817": "server/test_oauth_listeners.py::test_no_error_quotes_what_was_read",
    "CVE-2025-27818": f"{HERE}::test_no_class_of_a_login_module_is_loaded",
    "CVE-2025-27819": f"{HERE}::test_no_class_of_a_login_module_is_loaded",
    "CVE-2025-66566": "records/test_records.py::test_a_batch_inflates_only_to_its_bound",
    "CVE-2026-10143": "security/test_scram.py::test_a_client_refuses_what_a_server_may_not_ask",
    "CVE-2026-27962": (
        "security/test_oauthbearer.py::test_no_signature_but_that_of_a_known_key_is_accepted"
    ),
    "CVE-2026-33557": (
        "security/test_oauthbearer.py::test_no_signature_but_that_of_a_known_key_is_accepted"
    ),
    "CVE-2026-33558": "server/test_sasl_gate.py::test_no_log_line_has_a_password",
    "CVE-2026-35554": f"{HERE}::test_records_of_requests_that_wait_stay_those_that_were_sent",
    "CVE-2026-41115": (
        "server/test_granted.py"
        "::test_each_request_is_allowed_by_its_grants_alone_and_denied_without_any_of_them"
    ),
    "CVE-2026-110985": (
        "server/test_oauth_listeners.py"
        "::test_a_listener_whose_tokens_cannot_be_verified_does_not_start"
    ),
    "CVE-2026-111073": (
        "server/broker/test_client_telemetry.py"
        "::test_payloads_are_bounded_before_and_after_decompression"
    ),
    "CVE-2026-111108": "protocol/test_bad_bytes.py::test_the_budget_counts_nested_arrays_together",
    "CVE-2026-111115": (
        "protocol/test_bad_bytes.py::test_one_byte_elements_cannot_exceed_the_budget"
    ),
}


@pytest.mark.parametrize("number", PROVEN)
def test_each_class_has_its_test(number):
    file, _, name = PROVEN[number].partition("::")
    assert re.search(rf"^def {name}\(", (TESTS / file).read_text(), re.MULTILINE), number


def test_a_client_that_says_it_is_a_replica_reads_nothing(tmp_path):
    """CVE-2018-1288: it needs CLUSTER_ACTION, whatever topics it may read."""

    async def test():
        async with node_in(tmp_path) as node:
            client = await connect(node)
            topic_id = await create_topic(client, "t")
            await append(client, topic_id, batch(b"v"), acks=1)
            reader = Deciding(lambda _operation, kind, _name: kind is AclResourceType.TOPIC)
            for each in node.listeners:
                each.authorizer = reader
            peer = await connect(node)
            assert values_of((await peer.send(fetch(topic_id))).responses[0].partitions[0])
            for replica_id in (0, 1, 7):
                request = fetch(topic_id)
                request.replica_state.replica_id = replica_id
                partition = (await peer.send(request)).responses[0].partitions[0]
                assert partition.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
                assert not partition.records
            await peer.close()
            await client.close()

    run(test())


def test_no_part_of_a_produce_passes_without_the_transactional_id(tmp_path):
    """CVE-2018-17196: a transactional batch anywhere in the request needs WRITE on the id."""
    transactional = batch(
        b"v", producer_id=5, producer_epoch=0, base_sequence=0, transactional=True
    )

    def request(transactional_id: str | None, *records: Any) -> ProduceRequest:
        parts = [PartitionProduceData(index=n, records=each) for n, each in enumerate(records)]
        data = [TopicProduceData(name="t", partition_data=parts)]
        return ProduceRequest(
            transactional_id=transactional_id, acks=1, timeout_ms=10_000, topic_data=data
        )

    async def test():
        async with node_in(tmp_path) as node:
            client = await connect(node)
            await create_topic(client, "t", partitions=2)
            await client.send(request(None, batch(b"warm"), batch(b"up")), version=12)
            for each in node.listeners:
                each.authorizer = Deciding(
                    lambda operation, kind, _name: (
                        (operation, kind) == (AclOperation.WRITE, AclResourceType.TOPIC)
                    )
                )
            peer = await connect(node)
            for transactional_id in (None, "", "x"):
                for records in ((transactional, batch(b"w")), (batch(b"w"), transactional)):
                    sent = request(transactional_id, *records)
                    (topic,) = (await peer.send(sent, version=12)).responses
                    assert {part.error_code for part in topic.partition_responses} == {
                        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
                    }, transactional_id
            for partition in (0, 1):
                found = await client.send(fetch_by_name("t", partition), version=12)
                assert len(values_of(found.responses[0].partitions[0])) == 1
            await peer.close()
            await client.close()

    def fetch_by_name(name: str, partition: int) -> Any:
        made = fetch(None, partitions=(partition,))
        made.topics[0].topic, made.topics[0].topic_id = name, bytes(16)
        return made

    run(test())


def test_secrets_are_compared_in_constant_time(monkeypatch):
    """CVE-2021-38153: passwords, proofs and nonces are compared by `compare_digest` only."""
    compared = []
    real = hmac.compare_digest

    def compare(one: Any, other: Any) -> bool:
        compared.append(len(one) == len(other))
        return real(one, other)

    monkeypatch.setattr(hmac, "compare_digest", compare)
    users = {"alice": Secret("wonder")}
    for user, password in (("alice", "wrong"), ("alice", "wonderful"), ("nobody", "wonder")):
        compared.clear()
        with pytest.raises(SaslError):
            PlainServer(users).respond(f"\0{user}\0{password}".encode())
        assert compared == [True], "also for an unknown user, and not by length"
    known = keys_of(SHA_256, salted_password(SHA_256, Secret("wonder"), b"salt" * 4, 4096))
    stored = ScramCredential(b"salt" * 4, known.stored_key, known.server_key, 4096)
    server = ScramServer(SHA_256, lambda _: stored, nonce="server", unknown_user_key=b"key")
    client = ScramClient(SHA_256, "alice", Secret("wrong"), nonce="client")
    compared.clear()
    with pytest.raises(SaslError):
        server.respond(client.respond(server.respond(client.first())))
    assert len(compared) == 2, "the nonce and the proof"


MODULES = (
    "com.sun.security.auth.module.JndiLoginModule",
    "com.sun.security.auth.module.LdapLoginModule",
    "os.system",
    "sparkraft.security.plain.PlainServer",
)


CLASS_KEYS = (
    "authorizer.class.name",
    "principal.builder.class",
    "replica.selector.class",
    "client.quota.callback.class",
    "create.topic.policy.class.name",
)


@pytest.mark.parametrize("module", MODULES)
def test_no_class_of_a_login_module_is_loaded(tmp_path, module):
    """CVE-2023-25194, CVE-2025-27818 and CVE-2025-27819: classes are words of a fixed list."""
    text = f'{module} required user.provider.url="ldap://attacker" useFirstPass="true";'
    with pytest.raises(JaasError) as caught:
        parse_jaas(text)
    assert "attacker" not in str(caught.value)
    for key in CLASS_KEYS:
        with pytest.raises(ConfigError, match=re.escape(key)):
            NodeConfig(config_of(tmp_path) | {key: module})


def test_no_value_of_a_config_names_a_file_to_read(tmp_path):
    """CVE-2024-31141: providers are refused, and their references are plain text."""
    with pytest.raises(ConfigError, match=r"config\.providers"):
        NodeConfig(config_of(tmp_path) | {"config.providers": "file"})
    secret = tmp_path / "secret"
    secret.write_text("password=planted-7741")
    reference = f"${{file:{secret}:password}}"
    config = NodeConfig(config_of(tmp_path) | {"broker.rack": reference})
    assert config.text("broker.rack") == reference


def test_records_of_requests_that_wait_stay_those_that_were_sent(tmp_path):
    """CVE-2026-35554: no buffer of one request is used for another while it waits."""

    async def test():
        async with node_in(tmp_path) as node:
            client = await connect(node)
            ids = [await create_topic(client, name) for name in ("a", "b")]
            sent: list[Any] = []
            for number in range(120):
                value = bytes([number]) * (1 + number * 97 % 5_000)
                part = PartitionProduceData(index=0, records=batch(value))
                topic = TopicProduceData(topic_id=ids[number % 2], partition_data=[part])
                request = ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[topic])
                sent.append((number % 2, value, client.send_nowait(request)))
            for _, _, response in sent:
                (topic,) = (await response).responses
                assert topic.partition_responses[0].error_code == 0
            for index, topic_id in enumerate(ids):
                found = await client.send(fetch(topic_id))
                expected = [value for number, value, _ in sent if number == index]
                assert values_of(found.responses[0].partitions[0]) == expected
            await client.close()

    run(test())
