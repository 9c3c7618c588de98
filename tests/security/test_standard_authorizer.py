"""StandardAuthorizer against a naive reading of Kafka's rules, and case by case."""

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.security.acl_index import AclIndex
from sparkraft.security.acls import (
    CLUSTER_NAME,
    Acl,
    AclOperation,
    AclPermissionType,
    AclResourceType,
    PatternType,
)
from sparkraft.security.principal import KafkaPrincipal
from sparkraft.security.standard_authorizer import (
    DECISIONS_MAX,
    StandardAuthorizer,
    java_host,
    parse_super_users,
)

READ, WRITE, DELETE, ALTER, ALL = (
    AclOperation.READ,
    AclOperation.WRITE,
    AclOperation.DELETE,
    AclOperation.ALTER,
    AclOperation.ALL,
)
DESCRIBE, CREATE = AclOperation.DESCRIBE, AclOperation.CREATE
TOPIC, GROUP, CLUSTER = AclResourceType.TOPIC, AclResourceType.GROUP, AclResourceType.CLUSTER
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
ALLOW, DENY = AclPermissionType.ALLOW, AclPermissionType.DENY


@dataclass(frozen=True)
class Client:
    principal: KafkaPrincipal
    client_host: str = "10.0.0.1"


ALICE = Client(KafkaPrincipal("User", "alice"))
BOB = Client(KafkaPrincipal("User", "bob"))


def acl(
    name: str = "t",
    operation: AclOperation = READ,
    permission: AclPermissionType = ALLOW,
    *,
    principal: str = "User:alice",
    host: str = "*",
    kind: PatternType = LITERAL,
    of: AclResourceType = TOPIC,
) -> Acl:
    return Acl(of, name, kind, principal, host, operation, permission)


def authorizer(*acls: Acl, **options: Any) -> StandardAuthorizer:
    made = StandardAuthorizer(**options)
    made.load(acls)
    made.complete_load()
    return made


def may(made: StandardAuthorizer, operation: AclOperation, name: str = "t", who: Client = ALICE,
        of: AclResourceType = TOPIC) -> bool:  # fmt: skip
    return made.authorize(who, operation, of, name)


# ---- the rules, read naively


def covers(entry: Acl, name: str) -> bool:
    if entry.pattern_type == PREFIXED:
        return name.startswith(entry.resource_name)
    return entry.resource_name in {name, "*"}


def naive(
    acls: list[Acl], who: Client, operation: AclOperation, of: AclResourceType, name: str,
    default: bool,
) -> bool:  # fmt: skip
    """The rules of Kafka's StandardAuthorizerData.findAclRule, by a scan of all entries."""
    covering = [a for a in acls if a.resource_type == of and covers(a, name)]
    mine = [
        a
        for a in covering
        if a.principal in {str(who.principal), "User:*"} and a.host in {who.client_host, "*"}
    ]
    if any(a.permission_type == DENY and a.operation in {operation, ALL} for a in mine):
        return False
    enough = {operation, ALL}
    if operation == DESCRIBE:
        enough |= {READ, WRITE, DELETE, ALTER}
    if operation == AclOperation.DESCRIBE_CONFIGS:
        enough |= {AclOperation.ALTER_CONFIGS}
    if any(a.permission_type == ALLOW and a.operation in enough for a in mine):
        return True
    return default and not covering


NAMES = ["t", "ta", "tab", "b", "*", "*a"]
ENTRIES = st.builds(
    Acl,
    st.sampled_from([TOPIC, GROUP]),
    st.sampled_from(NAMES),
    st.sampled_from([LITERAL, PREFIXED]),
    st.sampled_from(["User:alice", "User:bob", "User:*", "Group:alice"]),
    st.sampled_from(["*", "10.0.0.1", "10.0.0.2"]),
    st.sampled_from(
        [ALL, READ, WRITE, DELETE, ALTER, DESCRIBE, CREATE,
         AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS]
    ),
    st.sampled_from([ALLOW, DENY]),
)  # fmt: skip
CLIENTS = st.sampled_from(
    [ALICE, BOB, Client(ALICE.principal, "10.0.0.2"), Client(KafkaPrincipal("Group", "alice"))]
)
QUESTIONS = st.tuples(
    CLIENTS,
    st.sampled_from([READ, WRITE, DESCRIBE, CREATE, AclOperation.DESCRIBE_CONFIGS]),
    st.sampled_from([TOPIC, GROUP]),
    st.sampled_from(["t", "ta", "tabc", "b", "x", "*ab"]),
)


@settings(max_examples=200)
@given(
    st.lists(ENTRIES, max_size=8),
    st.lists(st.tuples(st.integers(0, 7), ENTRIES), max_size=4),
    st.lists(QUESTIONS, min_size=1, max_size=6),
    st.booleans(),
)
def test_decisions_are_those_of_a_scan_of_all_entries_after_any_changes(
    first, changes, questions, default
):
    made = authorizer(*first, allow_everyone_if_no_acl=default)
    acls = list(first)
    for number, added in [(None, None), *changes]:
        if added is not None:
            removed = [acls.pop(number)] if number < len(acls) else []
            acls.append(added)
            made.change(removed=removed, added=[added])
        for who, operation, of, name in questions:
            expected = naive(acls, who, operation, of, name, default)
            assert made.authorize(who, operation, of, name) is expected


@settings(max_examples=100)
@given(st.lists(ENTRIES, max_size=8), ENTRIES, QUESTIONS)
def test_another_deny_allows_nothing_and_a_removed_allow_allows_nothing(acls, more, question):
    who, operation, of, name = question
    made = authorizer(*acls)
    before = made.authorize(who, operation, of, name)
    if more.permission_type == DENY:
        made.change(removed=[], added=[more])
        assert before or not made.authorize(who, operation, of, name)
    else:
        made.change(removed=[], added=[more])
        after = made.authorize(who, operation, of, name)
        made.change(removed=[more], added=[])
        assert made.authorize(who, operation, of, name) is before
        assert after or not before


# ---- case by case


@pytest.mark.parametrize("operation", [READ, WRITE, DELETE, ALTER])
def test_an_allowed_operation_implies_describe_and_a_denied_one_does_not(operation):
    assert may(authorizer(acl(operation=operation)), DESCRIBE)
    both = authorizer(acl(operation=operation, permission=DENY), acl(operation=DESCRIBE))
    assert may(both, DESCRIBE)
    assert not may(both, operation)


def test_describe_implies_nothing_and_alter_configs_implies_describe_configs():
    assert not may(authorizer(acl(operation=DESCRIBE)), READ)
    configs = authorizer(acl(operation=AclOperation.ALTER_CONFIGS))
    assert may(configs, AclOperation.DESCRIBE_CONFIGS)
    assert not may(configs, DESCRIBE)
    assert not may(authorizer(acl(operation=CREATE)), DESCRIBE)


def test_any_entry_of_anybody_that_fits_ends_the_default_allow():
    made = authorizer(acl("a-", kind=PREFIXED, principal="User:bob"), allow_everyone_if_no_acl=True)
    assert may(made, READ, "b")
    assert not may(made, READ, "a-1")
    assert may(made, READ, "a-1", BOB)
    made.change(removed=[], added=[acl("*", principal="User:bob")])
    assert not may(made, READ, "b")


def test_a_prefixed_star_is_a_prefix_and_a_literal_star_a_wildcard():
    assert not may(authorizer(acl("*", kind=PREFIXED)), READ)
    assert may(authorizer(acl("*", kind=PREFIXED)), READ, "*x")
    assert may(authorizer(acl("*")), READ)


def test_super_users_pass_before_the_entries_are_loaded_and_others_fail():
    made = StandardAuthorizer({"User:alice"})
    made.load([acl("t", ALL, DENY), acl("t", ALL, principal="User:bob")])
    assert may(made, READ)
    with pytest.raises(KafkaError) as caught:
        may(made, READ, who=BOB)
    assert caught.value.code == ErrorCode.UNKNOWN_SERVER_ERROR
    made.complete_load()
    assert may(made, READ), "no entry denies a super user"
    assert may(made, READ, who=BOB)


def test_the_user_named_star_and_a_type_with_a_colon_get_no_entry_of_others():
    made = authorizer(acl(principal="User:*"), acl(principal="A:B:c"))
    assert may(made, READ)
    assert not may(made, READ, who=Client(KafkaPrincipal("User", "*")))
    assert not may(made, READ, who=Client(KafkaPrincipal("A:B", "c")))
    assert may(made, READ, who=Client(KafkaPrincipal("A", "B:c")))


def test_how_a_principal_authenticated_is_not_part_of_it():
    token = Client(KafkaPrincipal("User", "alice", token_authenticated=True))
    assert may(authorizer(acl()), READ, who=token)


def test_hosts_are_compared_as_java_writes_them():
    made = authorizer(acl(host="0:0:0:0:0:0:0:1"), acl("v4", host="10.0.0.9"))
    assert may(made, READ, who=Client(ALICE.principal, "::1"))
    assert may(made, READ, "v4", Client(ALICE.principal, "::ffff:10.0.0.9"))
    assert not may(made, READ, who=ALICE)


@pytest.mark.parametrize(
    ("host", "text"),
    [
        ("10.1.2.3", "10.1.2.3"),
        ("::ffff:10.1.2.3", "10.1.2.3"),
        ("::1", "0:0:0:0:0:0:0:1"),
        ("2001:db8::00ff", "2001:db8:0:0:0:0:0:ff"),
        ("fe80::1%eth0", "fe80:0:0:0:0:0:0:1%eth0"),
        ("not:an:address", "not:an:address"),
    ],
)
def test_an_address_in_javas_form(host, text):
    assert java_host(host) == text


def test_equal_entries_count_and_one_removal_leaves_the_other():
    made = authorizer(acl("a-", kind=PREFIXED), acl("a-", kind=PREFIXED))
    made.change(removed=[acl("a-", kind=PREFIXED)], added=[])
    assert may(made, READ, "a-1")
    made.change(removed=[acl("a-", kind=PREFIXED)], added=[])
    assert not may(made, READ, "a-1")


def test_an_index_that_is_emptied_keeps_nothing():
    entries = [acl("a-", kind=PREFIXED), acl("b"), acl("*"), acl("a-b", kind=PREFIXED)]
    index = AclIndex(entries)
    for entry in entries:
        index.remove(entry)
    assert not index._entries
    assert not index._lengths[TOPIC]


def test_remembered_decisions_are_bounded():
    made = authorizer(acl("*"))
    for number in range(DECISIONS_MAX + 10):
        may(made, READ, f"t{number}")
    assert len(made._verdicts) <= DECISIONS_MAX


@pytest.mark.parametrize(
    ("acls", "allowed"),
    [
        ([], False),
        ([acl("t", WRITE)], True),
        ([acl("t", ALL)], True),
        ([acl("t", READ)], False),
        ([acl("t", WRITE, principal="User:bob")], False),
        ([acl("t", WRITE, host="10.0.0.2")], False),
        ([acl("t", WRITE, of=GROUP)], False),
        ([acl("*", WRITE)], True),
        ([acl("*", WRITE), acl("*", WRITE, DENY)], False),
        ([acl("t", WRITE), acl("*", ALL, DENY)], False),
        ([acl("t", WRITE), acl("t", WRITE, DENY)], False),
        ([acl("*", WRITE), acl("hardcode", WRITE, DENY)], True),
        ([acl("t", WRITE), acl("t", WRITE, DENY, kind=PREFIXED)], False),
        ([acl("tab", WRITE), acl("t", WRITE, DENY, kind=PREFIXED)], False),
        ([acl("tab", WRITE, kind=PREFIXED), acl("ta", WRITE, DENY, kind=PREFIXED)], False),
        ([acl("ta", WRITE, kind=PREFIXED), acl("ta", WRITE, DENY)], True),
        ([acl("ta", WRITE, kind=PREFIXED), acl("tab", WRITE, DENY, kind=PREFIXED)], True),
        ([acl("t", WRITE), acl("x", WRITE, DENY)], True),
        ([acl("t", WRITE), acl("t", READ, DENY)], True),
    ],
)
def test_authorize_any_looks_for_a_pattern_that_no_deny_dominates(acls, allowed):
    """The cases of Kafka's Authorizer.authorizeByResourceType (KIP-679)."""
    made = authorizer(*acls)
    assert made.authorize_any(ALICE, WRITE, TOPIC) is allowed
    assert made.authorize_any(ALICE, WRITE, TOPIC) is allowed, "remembered"


def test_authorize_any_has_no_implied_operations_but_the_fixed_name_has():
    assert not authorizer(acl("t", WRITE)).authorize_any(ALICE, DESCRIBE, TOPIC)
    assert authorizer(acl("*", WRITE)).authorize_any(ALICE, DESCRIBE, TOPIC)
    assert authorizer(allow_everyone_if_no_acl=True).authorize_any(ALICE, WRITE, TOPIC)
    denied = authorizer(acl("*", ALL, DENY), super_users={"User:alice"})
    assert denied.authorize_any(ALICE, WRITE, TOPIC)


def test_the_cluster_is_a_resource_with_one_name():
    made = authorizer(acl(CLUSTER_NAME, ALTER, of=CLUSTER))
    assert may(made, ALTER, CLUSTER_NAME, of=CLUSTER)
    assert may(made, DESCRIBE, CLUSTER_NAME, of=CLUSTER)


def test_super_users_are_separated_by_semicolons():
    assert parse_super_users(" User:a ; User:CN=b,OU=c;;") == {"User:a", "User:CN=b,OU=c"}
    assert parse_super_users("") == frozenset()
    with pytest.raises(ValueError, match="'alice'"):
        parse_super_users("User:a;alice")
