"""`zookeeper.connect`, as Kafka's users write it."""

import pytest

from sparkraft.zookeeper.connect_string import parse_connect_string


@pytest.mark.parametrize(
    ("text", "servers", "chroot"),
    [
        ("localhost", (("localhost", 2181),), ""),
        ("a:1,b:2/kafka/east", (("a", 1), ("b", 2)), "/kafka/east"),
        (" a:1 , b ", (("a", 1), ("b", 2181)), ""),
        ("[::1]:2182/", (("::1", 2182),), ""),
    ],
)
def test_servers_and_chroot(text: str, servers: object, chroot: str) -> None:
    parsed = parse_connect_string(text)
    assert (parsed.servers, parsed.chroot) == (servers, chroot)
    assert parse_connect_string(str(parsed)) == parsed


@pytest.mark.parametrize("text", ["", "/kafka", "a:x", "a:0", "a:65536", "a:1/b//c", ":2181"])
def test_what_is_no_ensemble_is_named(text: str) -> None:
    with pytest.raises(ValueError, match=r"names no server|is not HOST:PORT|empty name"):
        parse_connect_string(text)
