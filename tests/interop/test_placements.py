"""Where new replicas go, against Kafka's StripedReplicaPlacer, throw by throw of the same dice."""

import random
from pathlib import Path
from typing import Any

import pytest

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.controller.placement import UsableBroker, place_replicas
from tests.interop.java_source import ask_java

pytestmark = pytest.mark.java

CASES = 2_000


class Dice:
    """The dice of `Placements.java`."""

    def __init__(self, seed: int) -> None:
        self._state = seed

    def below(self, bound: int) -> int:
        self._state = (self._state * 1103515245 + 12345) & 0x7FFFFFFF
        return (self._state >> 8) % bound

    def random_bytes(self, count: int) -> bytes:
        return bytes(self.below(256) for _ in range(count))


def a_cluster(dice: random.Random) -> list[UsableBroker]:
    count = dice.randint(1, 9)
    racks = [None, "a", "b", "c"][: dice.randint(1, 4)]
    if dice.random() < 0.5:
        racks = racks[1:] or racks
    ids = dice.sample(range(100), count)
    fenced = dice.choice([0.0, 0.0, 0.2, 0.6])
    return [UsableBroker(i, dice.choice(racks), dice.random() < fenced) for i in ids]


def test_replicas_go_where_kafka_puts_them(kafka_jars: Path) -> None:
    dice = random.Random(7)
    cases: list[tuple[list[UsableBroker], int, int, int]] = []
    for _ in range(CASES):
        brokers = a_cluster(dice)
        factor = dice.randint(1, min(5, len(brokers) + 1))
        cases.append((brokers, dice.randint(1, 12), factor, dice.randint(0, 1 << 30)))
    lines = [
        ";".join(
            [
                ",".join(f"{b.id}:{b.rack or ''}:{int(b.fenced)}" for b in brokers),
                str(partitions),
                str(factor),
                str(seed),
            ]
        )
        for brokers, partitions, factor, seed in cases
    ]
    answers = ask_java(kafka_jars, "Placements", lines)
    assert len(answers) == CASES
    wrong = [
        f"{line}\n  Kafka {kafka}\n  we    {ours(*case)}"
        for line, case, kafka in zip(lines, cases, answers, strict=True)
        if ours(*case) != kafka
    ]
    assert not wrong, f"{len(wrong)} of {CASES} differ:\n" + "\n".join(wrong[:10])
    assert 0 < sum("Exception" in answer for answer in answers) < CASES // 2


def ours(brokers: list[UsableBroker], partitions: int, factor: int, seed: int) -> str:
    try:
        placed: Any = place_replicas(
            brokers, partitions=partitions, replication_factor=factor, entropy=Dice(seed)
        )
    except KafkaError as error:
        refused = error.code is ErrorCode.INVALID_REPLICATION_FACTOR
        return "InvalidReplicationFactorException" if refused else str(error)
    return " ".join(",".join(map(str, replicas)) for replicas in placed)
