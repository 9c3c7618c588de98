"""The assignors a group's leader runs: their promises, and Kafka's own beside them."""

import random
import subprocess
from collections.abc import Mapping
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given

from sparkraft.client.assignors import (
    ASSIGNORS,
    Assignment,
    Subscriber,
    decode_sticky_user_data,
    encode_sticky_user_data,
)

TOPICS = ("t", "u", "v")
Members = dict[str, Subscriber]
Counts = dict[str, int]

SUBSCRIBERS = st.builds(
    Subscriber,
    topics=st.frozensets(st.sampled_from(TOPICS)),
    instance_id=st.none(),
)
MEMBERS = st.dictionaries(st.sampled_from("abcdef"), SUBSCRIBERS, min_size=1)
COUNTS = st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 7))


def check(members: Mapping[str, Subscriber], counts: Counts, shares: Assignment) -> None:
    """Every partition somebody reads belongs to exactly one of its readers."""
    assert set(shares) == set(members)
    given_out = [tp for share in shares.values() for tp in share]
    assert len(given_out) == len(set(given_out))
    read = {topic for one in members.values() for topic in one.topics}
    assert set(given_out) == {
        (topic, index) for topic in read for index in range(counts.get(topic, 0))
    }
    for member, share in shares.items():
        assert {topic for topic, _ in share} <= members[member].topics


@pytest.mark.parametrize("name", sorted(ASSIGNORS))
@given(members=MEMBERS, counts=COUNTS)
def test_every_partition_has_one_reader(name: str, members: Members, counts: Counts) -> None:
    shares = ASSIGNORS[name](members, counts)
    check(members, counts, shares)
    backwards = dict(reversed(list(members.items())))
    assert ASSIGNORS[name](backwards, counts) == shares


def with_owned(members: Members, shares: Assignment, generation: int) -> Members:
    return {
        name: Subscriber(
            topics=one.topics, owned=tuple(shares.get(name, ())), generation=generation
        )
        for name, one in members.items()
    }


@given(members=MEMBERS, counts=COUNTS)
def test_sticky_moves_nothing_where_nothing_changed(members: Members, counts: Counts) -> None:
    sticky = ASSIGNORS["sticky"]
    shares = sticky(members, counts)
    assert sticky(with_owned(members, shares, 1), counts) == shares


@given(count=st.integers(1, 6), partitions=st.integers(0, 30), leaves=st.booleans())
def test_sticky_moves_no_more_than_it_must_among_equals(
    count: int, partitions: int, leaves: bool
) -> None:
    sticky = ASSIGNORS["sticky"]
    everyone = {f"m{at}": Subscriber(topics=frozenset({"t"})) for at in range(count + 1)}
    fewer = dict(list(everyone.items())[:-1])
    before, after = (everyone, fewer) if leaves else (fewer, everyone)
    counts = {"t": partitions}
    old = sticky(before, counts)
    new = sticky(with_owned(after, old, 1), counts)
    check(after, counts, new)
    sizes = sorted(len(share) for share in new.values())
    assert sizes[-1] - sizes[0] <= 1
    kept = sum(len(set(old.get(name, ())) & set(share)) for name, share in new.items())
    gone = len(old["m" + str(count)]) if leaves else 0
    newcomer = 0 if leaves else len(new["m" + str(count)])
    assert kept == partitions - gone - newcomer


def test_of_two_claims_to_a_partition_the_newer_counts() -> None:
    members = {
        "a": Subscriber(topics=frozenset({"t"}), owned=(("t", 0), ("t", 1)), generation=1),
        "b": Subscriber(topics=frozenset({"t"}), owned=(("t", 0),), generation=2),
    }
    assert ASSIGNORS["sticky"](members, {"t": 2}) == {"a": [("t", 1)], "b": [("t", 0)]}


@given(
    owned=st.dictionaries(st.text(max_size=5), st.lists(st.integers(0, 9), max_size=3)),
    generation=st.integers(-1, 9),
)
def test_sticky_user_data_comes_back(owned: dict[str, list[int]], generation: int) -> None:
    partitions, found = decode_sticky_user_data(encode_sticky_user_data(owned, generation))
    assert found == generation
    assert set(partitions) == {(topic, index) for topic, all_ in owned.items() for index in all_}


@given(st.binary(max_size=40))
def test_strange_user_data_means_nothing_owned(data: bytes) -> None:
    partitions, generation = decode_sticky_user_data(data)
    assert isinstance(partitions, tuple)
    assert isinstance(generation, int)


ORACLE = """
import java.util.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.consumer.internals.AbstractPartitionAssignor;
import org.apache.kafka.common.*;

public class Oracle {
    public static void main(String[] args) {
        Scanner lines = new Scanner(System.in);
        while (lines.hasNextLine()) {
            String[] parts = lines.nextLine().split("\\\\|", -1);
            AbstractPartitionAssignor assignor = parts[0].equals("range") ? new RangeAssignor()
                : parts[0].equals("roundrobin") ? new RoundRobinAssignor() : new StickyAssignor();
            Map<String, List<PartitionInfo>> counts = new HashMap<>();
            for (String topic : words(parts[1])) {
                List<PartitionInfo> all = new ArrayList<>();
                for (int i = 0; i < Integer.parseInt(topic.split(":")[1]); i++)
                    all.add(new PartitionInfo(topic.split(":")[0], i, Node.noNode(),
                        new Node[0], new Node[0]));
                counts.put(topic.split(":")[0], all);
            }
            Map<String, ConsumerPartitionAssignor.Subscription> members = new HashMap<>();
            for (String member : words(parts[2])) {
                String[] halves = member.split(":", -1);
                members.put(halves[0], new ConsumerPartitionAssignor.Subscription(
                    halves[1].isEmpty() ? List.of() : List.of(halves[1].split(";"))));
            }
            StringBuilder out = new StringBuilder();
            new TreeMap<>(assignor.assignPartitions(counts, members)).forEach((member, share) -> {
                List<String> all = new ArrayList<>();
                share.forEach(tp -> all.add(tp.topic() + "-" + tp.partition()));
                Collections.sort(all);
                out.append(member).append("=").append(String.join(",", all)).append(" ");
            });
            System.out.println(out.toString().trim());
        }
    }
    static List<String> words(String text) {
        return text.isEmpty() ? List.of() : List.of(text.split(","));
    }
}
"""


@pytest.mark.java
def test_range_and_roundrobin_are_kafkas_and_sticky_is_as_even(
    kafka_jars: Path, tmp_path: Path
) -> None:
    dice = random.Random(7)
    cases = [random_case(dice) for _ in range(150)]
    lines = [
        "|".join(
            (
                name,
                ",".join(f"{topic}:{count}" for topic, count in counts.items()),
                ",".join(
                    f"{member}:{';'.join(sorted(one.topics))}" for member, one in members.items()
                ),
            )
        )
        for name, members, counts in cases
    ]
    source = tmp_path / "Oracle.java"
    source.write_text(ORACLE)
    done = subprocess.run(
        ["java", "-cp", f"{kafka_jars}/*", str(source)],
        input="\n".join(lines) + "\n", capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    theirs = done.stdout.splitlines()
    assert len(theirs) == len(cases)
    for (name, members, counts), line in zip(cases, theirs, strict=True):
        shares = ASSIGNORS[name](members, counts)
        if name == "sticky":
            sizes = sorted(
                len(one.partition("=")[2].split(",")) if one[-1] != "=" else 0
                for one in line.split()
            )
            ours = sorted(len(share) for share in shares.values())
            assert sum(n * n for n in ours) <= sum(n * n for n in sizes), (members, counts, line)
        else:
            assert shown(shares) == line, (name, members, counts)


def random_case(dice: random.Random) -> tuple[str, Members, Counts]:
    counts = {topic: dice.randint(1, 7) for topic in TOPICS[: dice.randint(1, 3)]}
    members = {}
    for member in "abcdef"[: dice.randint(1, 6)]:
        # Never no topics: Java's sticky assignor takes none for all.
        topics = dice.sample(sorted(counts), dice.randint(1, len(counts)))
        members[member] = Subscriber(topics=frozenset(topics))
    return dice.choice(sorted(ASSIGNORS)), members, counts


def shown(shares: Assignment) -> str:
    return " ".join(
        f"{member}=" + ",".join(sorted(f"{topic}-{index}" for topic, index in shares[member]))
        for member in sorted(shares)
    )
