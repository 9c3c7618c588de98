"""Lines of denied requests: Kafka's text, bounded in number, unbroken by names of clients."""

import json
import logging

import pytest

from sparkraft.cli.log_files import JsonFormatter
from sparkraft.security.acls import Acl, AclOperation, AclResourceType
from sparkraft.security.denials import KEYS_MAX, LINES_PER_S_MAX, DenialLog, denial_text, log
from sparkraft.security.principal import KafkaPrincipal
from tests.support.sessions import client_session

BOB = client_session(KafkaPrincipal("User", "bob"), client_host="10.0.0.1")
READ_T = (AclOperation.READ, AclResourceType.TOPIC, "t")


@pytest.fixture
def lines(caplog):
    caplog.set_level(logging.INFO, log.name)
    return lambda: [record.getMessage() for record in caplog.records]


def test_the_text_is_kafkas():
    assert denial_text(BOB, READ_T, "Fetch", "DefaultDeny") == (
        "Principal = User:bob is Denied operation = READ from host = 10.0.0.1 on resource = "
        "Topic:LITERAL:t for request = Fetch with resourceRefCount = 1 based on rule DefaultDeny"
    )
    acl = Acl(5, "x", 4, "User:*", "*", 2, 2)
    action = (AclOperation.WRITE, AclResourceType.TRANSACTIONAL_ID, "x1")
    assert denial_text(BOB, action, "EndTxn", acl).endswith(
        "on resource = TransactionalId:LITERAL:x1 for request = EndTxn with resourceRefCount = 1 "
        "based on rule MatchingAcl(acl=StandardAcl[resourceType=TRANSACTIONAL_ID, resourceName=x, "
        "patternType=PREFIXED, principal=User:*, host=*, operation=ALL, permissionType=DENY])"
    )


def test_a_name_cannot_forge_a_line():
    action = (AclOperation.READ, AclResourceType.GROUP, "g\nPrincipal = User:admin is Allowed")
    text = denial_text(BOB, action, "JoinGroup", "DefaultDeny")
    assert "\n" not in text
    assert "g\\nPrincipal" in text


def test_a_denial_that_is_repeated_is_logged_once_a_second_and_counted(lines):
    denials = DenialLog()
    for now in (5_000, 5_001, 5_999):
        denials.add(BOB, READ_T, "Fetch", "DefaultDeny", now)
    assert len(lines()) == 1
    denials.add(BOB, READ_T, "Metadata", "DefaultDeny", 5_999)
    assert len(lines()) == 2, "another request"
    denials.add(BOB, READ_T, "Fetch", "DefaultDeny", 6_000)
    assert lines()[2:] == ["2 more denials were not logged one by one", lines()[0]]


def test_lines_and_remembered_denials_are_bounded(lines):
    denials = DenialLog()
    for number in range(LINES_PER_S_MAX + 50):
        action = (AclOperation.READ, AclResourceType.TOPIC, f"t{number}")
        denials.add(BOB, action, "Fetch", "DefaultDeny", 5_000)
    assert len(lines()) == LINES_PER_S_MAX
    for number in range(2 * KEYS_MAX):
        action = (AclOperation.READ, AclResourceType.TOPIC, f"u{number}")
        denials.add(BOB, action, "Fetch", "DefaultDeny", 10_000 + 1_000 * number)
    assert len(denials._logged) == KEYS_MAX


def test_a_line_of_json_has_the_parts_of_a_denial(caplog):
    caplog.set_level(logging.INFO, log.name)
    name = "g\n\u2028Principal = User:admin"
    action = (AclOperation.READ, AclResourceType.GROUP, name)
    DenialLog().add(BOB, action, "JoinGroup", "DefaultDeny", 5_000)
    (record,) = caplog.records
    line = JsonFormatter(3, "broker").format(record)
    assert len(line.splitlines()) == 1
    found = json.loads(line)
    assert found.pop("ts")
    assert found == {
        "level": "INFO",
        "logger": "sparkraft.authorizer",
        "msg": denial_text(BOB, action, "JoinGroup", "DefaultDeny"),
        "node": 3,
        "role": "broker",
        "principal": "User:bob",
        "host": "10.0.0.1",
        "operation": "READ",
        "resource_type": "GROUP",
        "resource_name": name,
        "pattern_type": "LITERAL",
        "request": "JoinGroup",
        "allowed": False,
    }
