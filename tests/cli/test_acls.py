"""`acls`: its options and effects on a node; Kafka's tool has the same and prints the same."""

import io
import json
import re

import pytest

from sparkraft.cli import main as cli
from sparkraft.cli.acl_options import (
    acl_parser,
    check_options,
    resource_filters,
    resource_filters_with_entries,
)
from sparkraft.cli.errors import UsageError
from sparkraft.security.acls import Acl
from sparkraft.security.standard_authorizer import CLASS_NAME
from tests.support.kafka_tools import run_kafka_tool
from tests.support.nodes import SparkraftNode
from tests.support.ports import wait_until

SECURED = {"authorizer.class.name": CLASS_NAME, "super.users": "User:ANONYMOUS"}
BOOTSTRAP = ["--bootstrap-server", "localhost:9092"]
TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID = 2, 3, 4, 5
LITERAL, PREFIXED = 3, 4
ALL, READ, WRITE, CREATE, DESCRIBE, IDEMPOTENT_WRITE = 2, 3, 4, 5, 8, 12
DENY, ALLOW = 2, 3


def parsed(*argv: str):
    values = acl_parser().parse([*BOOTSTRAP, *argv])
    check_options(values)
    return values


def entries(*argv: str) -> list[Acl]:
    found = resource_filters_with_entries(parsed("--add", *argv))
    return [acl for acls in found.values() for acl in acls]


def test_principals_hosts_and_operations_are_multiplied():
    found = entries(
        "--topic", "t", "--allow-principal", "User:a", "--allow-principal", " User:b ",
        "--allow-host", "10.0.0.1", "--deny-principal", "User:c", "--operation", "Read",
        "--operation", "describe",
    )  # fmt: skip
    assert sorted(found) == sorted(
        [
            *(Acl(TOPIC, "t", LITERAL, who, "10.0.0.1", operation, ALLOW)
              for who in ("User:a", "User:b") for operation in (READ, DESCRIBE)),
            *(Acl(TOPIC, "t", LITERAL, "User:c", "*", op, DENY) for op in (READ, DESCRIBE)),
        ]
    )  # fmt: skip


def test_all_operations_are_the_default_and_every_resource_gets_the_entries():
    found = entries("--topic", "t", "--group", "g", "--cluster", "--allow-principal", "User:a")
    assert [(acl.resource_type, acl.operation) for acl in found] == [
        (TOPIC, ALL), (GROUP, ALL), (CLUSTER, ALL),
    ]  # fmt: skip


def test_roles_of_producers_and_consumers():
    found = entries(
        "--producer", "--consumer", "--idempotent", "--topic", "t", "--group", "g",
        "--transactional-id", "x", "--allow-principal", "User:a",
    )  # fmt: skip
    by_resource: dict[int, set[int]] = {}
    for acl in found:
        by_resource.setdefault(acl.resource_type, set()).add(acl.operation)
    assert by_resource == {
        TOPIC: {READ, WRITE, CREATE, DESCRIBE},
        TRANSACTIONAL_ID: {WRITE, DESCRIBE},
        GROUP: {READ},
        CLUSTER: {IDEMPOTENT_WRITE},
    }


def test_a_prefix_has_no_cluster():
    values = parsed("--list", "--topic", "t", "--cluster", "--resource-pattern-type", "prefixed")
    assert [(f.resource_type, f.pattern_type) for f in resource_filters(values)] == [
        (TOPIC, PREFIXED)
    ]


ALLOWED = ("--allow-principal", "User:a")


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("--topic", "t"), "exactly one action"),
        (("--add", "--list"), "exactly one action"),
        (("--list", *ALLOWED), '"[list]" can\'t be used with option "[allow-principal]"'),
        (("--add", "--producer", "--operation", "Read", "--topic", "t"), "[operation]"),
        (("--add", "--consumer", "--deny-host", "h", "--topic", "t"), "[deny-host]"),
        (("--add", "--principal", "User:a"), "only available if --list"),
        (("--add", "--producer", *ALLOWED), "must specify a --topic"),
        (("--add", "--idempotent", "--topic", "t"), "only available if --producer"),
        (("--add", "--consumer", "--topic", "t", *ALLOWED), "--topic and a --group"),
        (("--add", *ALLOWED), "at least one resource"),
        (("--add", "--topic", "t", "--allow-principal", "a"), "principalType:principalName"),
        (("--add", "--topic", "t", "--operation", "Fly", *ALLOWED), "not an operation"),
        (("--add", "--group", "g", "--operation", "Write", *ALLOWED), "GROUP only supports"),
        (("--list", "--resource-pattern-type", "odd"), "Unknown resource-pattern-type"),
    ],
)
def test_options_that_do_not_fit_are_refused_in_kafkas_words(argv, said):
    with pytest.raises(UsageError) as caught:
        resource_filters_with_entries(parsed(*argv))
    assert said in str(caught.value)


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    with SparkraftNode(tmp_path_factory.mktemp("acls"), overrides=SECURED) as made:
        yield made


@pytest.fixture
def acls(node, capsys):
    def run(*argv: str, code: int = 0, controller: bool = False) -> str:
        to = (
            ["--bootstrap-controller", f"127.0.0.1:{node.controller_port}"]
            if controller
            else ["--bootstrap-server", node.bootstrap]
        )
        assert cli.main(["acls", *to, *argv]) == code
        out = capsys.readouterr()
        return out.out if code == 0 else out.err

    run("--remove", "--force", "--topic", "*", "--resource-pattern-type", "any")
    return run


@pytest.mark.real_clients
def test_entries_are_added_listed_and_removed(acls, monkeypatch):
    said = acls("--add", "--topic", "orders", *ALLOWED, "--operation", "Read")
    pattern = "ResourcePattern(resourceType=TOPIC, name=orders, patternType=LITERAL)"
    entry = "(principal=User:a, host=*, operation=READ, permissionType=ALLOW)"
    assert said == f"Adding ACLs for resource `{pattern}`: \n \t{entry}\n\n"
    again = acls("--add", "--topic", "orders", *ALLOWED, "--operation", "Read")
    assert again == f"Acl (pattern={pattern}, entry={entry}) already exists.\n"
    listed = acls("--list", "--topic", "orders")
    assert listed == f"Current ACLs for resource `{pattern}`:\n\t{entry}\n\n"
    assert acls("--list", "--principal", "User:b") == "ACLs for principal `User:b`\n"
    (found,) = json.loads(acls("--list", "--output", "json", "--principal", "User:a"))
    assert found["operation"] == "READ"
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    asked = acls("--remove", "--topic", "orders")
    assert asked.startswith("Are you sure you want to delete all ACLs for resource filter `")
    assert acls("--list", "--topic", "orders") == listed
    acls("--remove", "--force", "--topic", "orders", *ALLOWED, "--operation", "Read")
    assert acls("--list", "--topic", "orders") == ""


@pytest.mark.real_clients
def test_a_controller_and_a_pattern_that_matches(acls):
    acls("--add", "--topic", "or", "--resource-pattern-type", "prefixed", *ALLOWED, controller=True)
    listed = acls("--list", "--topic", "orders", "--resource-pattern-type", "match",
                  controller=True)  # fmt: skip
    assert "name=or, patternType=PREFIXED" in listed
    said = acls("--add", "--topic", "t", "--resource-pattern-type", "match", *ALLOWED, code=2)
    assert "A '--resource-pattern-type' value of 'MATCH' is not valid when adding acls." in said
    said = acls("--add", "--topic", "t", code=2)
    assert "You must specify one of: --allow-principal, --deny-principal" in said


@pytest.mark.real_clients
@pytest.mark.java
def test_kafkas_tool_and_ours_print_the_same_of_each_others_entries(acls, node, kafka_jars):
    def theirs(*argv: str, stdin: str | None = None) -> str:
        done = run_kafka_tool(
            kafka_jars,
            "org.apache.kafka.tools.AclCommand",
            *("--bootstrap-server", node.bootstrap, *argv),
            stdin=stdin,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def both(*argv: str) -> None:
        assert blocks(acls(*argv)) == blocks(theirs(*argv))

    adding = (
        ("--topic", "a", "--allow-principal", "User:bob", "--operation", "Read",
         "--operation", "DescribeConfigs"),
        ("--topic", "p-", "--resource-pattern-type", "prefixed", "--deny-principal", "User:*",
         "--deny-host", "10.0.0.1"),
        ("--producer", "--idempotent", "--topic", "a", "--allow-principal", "User:p"),
        ("--consumer", "--topic", "a", "--group", "g", "--allow-principal", "User:c"),
        ("--user-principal", "User:bob", "--operation", "CreateTokens",
         "--allow-principal", "User:x"),
    )  # fmt: skip

    def wait_for_entries(count: int) -> None:
        """A node lists a change a moment after its controller said yes, as in Kafka."""
        wait_until(
            lambda: acls("--list").count("(principal=") == count, f"{count} entries are listed"
        )

    entries = acls("--list").count("(principal=")
    for argv in adding:
        added = theirs("--add", *argv)
        adding_blocks = [block for block in blocks(added) if "Adding ACLs" in "".join(block)]
        new = sum(line.startswith("(principal=") for block in adding_blocks for line in block)
        wait_for_entries(entries + new)
        theirs("--remove", "--force", *argv)
        wait_for_entries(entries)
        assert blocks(acls("--add", *argv)) == blocks(added)
        entries += new
        wait_for_entries(entries)
        both("--add", *argv)  # they exist
    both("--list")
    both("--list", "--topic", "p-1", "--resource-pattern-type", "match")
    both("--list", "--principal", "User:c", "--principal", "User:nobody")
    theirs("--remove", "--force", "--topic", "a")
    wait_until(lambda: "name=a," not in acls("--list"), "the entries of a are gone")
    both("--list")


def blocks(text: str) -> list[list[str]]:
    """Paragraphs with sorted lines, sorted: Kafka's tool prints in the order of a hash map.

    The line that names a principal stands above the paragraph that happens to come first. It
    counts as a paragraph of its own, and the paragraphs below it belong to it.
    """
    found: list[list[str]] = []
    principal: list[str] = []
    for block in re.split(r"\n\s*\n", re.sub(r"\A\s+|\s+\Z", "", text)):
        lines = []
        for line in map(str.strip, block.splitlines()):
            if line.startswith("ACLs for principal"):
                principal = [line]
                found.append(principal)
            else:
                lines.append(line)
        if lines:
            found.append(principal + sorted(lines))
    return sorted(found)


def test_the_order_of_paragraphs_does_not_count_but_their_principal_does():
    a, c = "ACLs for principal `User:a`\n", "ACLs for principal `User:c`\n"
    one, two = "Current ACLs for resource `1`:\n\tx\n\n", "Current ACLs for resource `2`:\n\ty\n\n"
    assert blocks(c + one + two) == blocks(c + two + one)
    assert blocks(a + c + one) == blocks(c + one + a)
    assert blocks(a + one + c + two) != blocks(a + two + c + one)
    assert blocks(c + one + two) != blocks(one + two)
    assert blocks(c + one) != blocks(c + two)
