"""Where a server that seems to work differs from Kafka in a way that an attacker or a client sees.

`SHOWN` names the tests that show each of them; those without one are below. The classes of known
vulnerabilities are in test_cve_classes.py.
"""

import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from sparkraft.server.config import ConfigError, NodeConfig
from sparkraft.server.env import SystemClock
from sparkraft.server.sasl_config import sasl_of_listeners
from tests.server.harness import config_of
from tests.support.sasl import server_module

TESTS = Path(__file__).parents[1]
HERE = "server/test_security_traps.py"

SHOWN = {
    "the fast path of Produce is behind authorization, sessions and quotas": (
        "server/test_authorization.py::test_the_fast_path_of_produce_passes_no_denied_session",
        "server/test_authorization.py"
        "::test_the_fast_path_of_produce_asks_the_authorizer_for_each_request",
        "server/test_reauthentication.py"
        "::test_each_frame_of_a_pipelined_chunk_is_checked_when_it_is_handled",
        "server/test_client_quotas.py"
        "::test_a_produce_over_the_quota_is_served_and_the_next_request_waits",
    ),
    "an envelope keeps the client's address, token flag and long name": (
        "server/test_authorization.py::test_a_forwarded_request_is_authorized_as_its_client",
        "server/test_authorization.py::test_an_envelope_drops_nothing_of_the_client",
        "server/test_delegation_tokens.py::test_the_controller_checks_forwarded_requests_again",
    ),
    "checks of controllers are in the handlers, and the node's own calls pass": (
        "server/test_authorization.py::test_handlers_are_reached_through_call_alone",
        "server/test_authorization.py::test_the_node_itself_needs_no_permission",
        "server/test_denied.py::test_a_denied_client_gets_kafkas_error_from_every_api",
    ),
    "distinguished names are written as Java writes them": (
        "security/test_distinguished_name.py::test_a_subject_is_written_as_java_writes_it",
        "security/test_names_of_java.py::test_random_names_are_written_as_a_jdk_writes_them",
    ),
    "any entry that fits ends the default, and only ALLOW implies operations": (
        "security/test_standard_authorizer.py"
        "::test_any_entry_of_anybody_that_fits_ends_the_default_allow",
        "security/test_standard_authorizer.py"
        "::test_an_allowed_operation_implies_describe_and_a_denied_one_does_not",
    ),
    "a response precedes its throttle, and requests behind it wait": (
        "server/test_client_quotas.py"
        "::test_a_fetch_over_the_quota_gets_its_records_and_its_connection_waits",
        "server/test_client_quotas.py::test_without_acks_the_connection_waits_all_the_same",
    ),
    "errors of denied requests are Kafka's, with its fields": (
        "server/test_cve_classes.py::test_a_client_that_says_it_is_a_replica_reads_nothing",
        "server/test_granted.py"
        "::test_each_request_is_allowed_by_its_grants_alone_and_denied_without_any_of_them",
        "server/test_denied.py::test_denials_have_the_fields_of_kafkas",
        "server/test_authorization.py"
        "::test_metadata_of_all_topics_leaves_out_what_the_client_may_not_describe",
    ),
    "requests around the end of an exchange of SASL tokens": (
        "server/test_sasl_gate.py"
        "::test_a_whole_login_in_one_segment_is_followed_by_requests_with_the_new_principal",
        "server/test_sasl_gate.py::test_requests_behind_a_failing_token_are_never_handled",
        "security/test_authenticator.py::test_after_versions_only_a_handshake_is_accepted",
        "server/test_reauthentication.py"
        "::test_another_mechanism_ends_the_connection_at_the_next_frame_without_a_response",
        "server/test_reauthentication.py"
        "::test_our_client_re_authenticates_in_time_and_its_requests_wait_for_it",
    ),
    "principals of controllers are super users, and not of SCRAM": (
        "server/test_access_control.py::test_controllers_of_a_quorum_must_be_super_users",
        "server/test_access_control.py"
        "::test_a_controller_listener_serves_only_super_users_before_the_load",
        f"{HERE}::test_controllers_do_not_authenticate_by_scram",
    ),
    "stores of either form, and keys that count with a prefix only": (
        "tls/test_binary_stores.py::test_stores_of_both_forms_are_read_whatever_their_type_says",
        "server/test_tls.py::test_sasl_over_tls",
        f"{HERE}::test_a_login_module_without_its_mechanism_is_not_used",
        "server/test_sending.py::test_parts_of_files_go_to_plain_sockets_alone",
    ),
    "tokens cost nothing at load, and expired ones log nobody in": (
        "security/test_scram.py::test_the_credential_of_a_token_is_the_same_on_every_node_and_kept",
        "server/test_delegation_tokens.py::test_a_session_ends_when_its_token_expires",
        "server/test_delegation_tokens.py::test_rights_on_users_and_tokens",
    ),
    "quotas are bounded, finite, and of addresses without a name service": (
        "security/test_client_quotas.py::test_what_is_kept_of_clients_is_bounded",
        "controller/test_client_quotas.py::test_an_invalid_alteration_fails_alone",
        "security/test_client_quotas.py"
        "::test_a_client_over_its_share_of_time_waits_one_window_at_most",
    ),
    "addresses in other forms, names with a colon, and the user *": (
        "security/test_standard_authorizer.py::test_hosts_are_compared_as_java_writes_them",
        "security/test_standard_authorizer.py::test_an_address_in_javas_form",
        "security/test_standard_authorizer.py"
        "::test_the_user_named_star_and_a_type_with_a_colon_get_no_entry_of_others",
        "security/test_plain.py::test_everything_else_fails_and_tells_no_more_than_kafka_does",
    ),
    "passwords in the metadata log, its snapshots, and logs of bytes": (
        "metadata/test_redaction.py::test_no_secret_is_left_in_a_redacted_record",
        "server/test_earlier_metadata.py::test_no_secret_leaves_the_node",
        "server/test_planted_secrets.py::test_nothing_that_a_node_shows_has_a_secret",
        "server/test_planted_secrets.py::test_bytes_of_requests_with_secrets_are_not_logged",
        "storage/test_os_disk.py::test_only_the_owner_reads_the_metadata_log",
    ),
}


@pytest.mark.parametrize("trap", SHOWN)
def test_each_is_shown_by_tests(trap):
    for test in SHOWN[trap]:
        file, _, name = test.partition("::")
        assert re.search(rf"^def {name}\(", (TESTS / file).read_text(), re.MULTILINE), test


def configs(tmp_path, **changes):
    listener = "listener.name.plaintext"
    return config_of(tmp_path) | {
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        f"{listener}.plain.sasl.jaas.config": server_module("PLAIN"),
        **changes,
    }


@pytest.mark.parametrize("key", ["sasl.jaas.config", "listener.name.plaintext.sasl.jaas.config"])
def test_a_login_module_without_its_mechanism_is_not_used(tmp_path, key):
    """`JaasContext.loadServerContext` ignores it; here the node does not start without another."""
    users = configs(tmp_path)
    whole = "listener.name.plaintext.plain.sasl.jaas.config"
    users[key] = users.pop(whole)
    with pytest.raises(ConfigError, match=re.escape(f"{whole} is missing")):
        sasl_of_listeners(NodeConfig(users), None, SystemClock())


def test_controllers_do_not_authenticate_by_scram(tmp_path):
    """Its users are in the log that controllers elect a leader for (KIP-900)."""
    scram = configs(
        tmp_path,
        **{
            "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
            "listener.name.controller.sasl.enabled.mechanisms": "SCRAM-SHA-256",
            "sasl.mechanism.controller.protocol": "SCRAM-SHA-256",
            "listener.name.controller.scram-sha-256.sasl.jaas.config": server_module(
                "SCRAM-SHA-256"
            ),
        },
    )
    logins = SimpleNamespace(begin=lambda *_: None)
    with pytest.raises(ConfigError, match="cannot authenticate each other by SCRAM"):
        sasl_of_listeners(NodeConfig(scram), logins, SystemClock())
