"""Records that are there twice are excused only where their producer says it sent them anew."""

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sparkraft.records.record import BatchBuilder
from sparkraft.simulation.workload.history import Anomaly
from tests.faults.records_world import TOPIC, RecordsWorld
from tests.support.record_clients import NewEpochs

pytestmark = pytest.mark.real_clients

# What librdkafka 2.16 writes (rd_kafka_handle_idempotent_Produce_error, rd_kafka_idemp_drain_…).
SKIPPED = (
    "ERRSEQ [c2#producer-1] [thrd:h:1/3]: h:1/3: ProduceRequest for records [4] with 3 message(s) "
    "failed due to skipped sequence numbers (PID{{Id:1,Epoch:0}}, base seq 1330 > next seq 1327) "
    "caused by previous failed request ({}, actions Refresh,MsgNotPersisted, base seq 1327..1329, "
    "base msgid 1328, 3ms ago): recovering and retrying"
)
BUMP = (
    "DRAIN [c2#producer-1] [thrd:h:1/3]: Beginning partition drain in state Assigned for "
    "PID{{Id:1,Epoch:0}} epoch bump for 2 partition(s) with in-flight requests: {}"
)
ORDINARY = "DRAIN [c2#producer-1] [thrd:h:1/3]: records [0] beginning partition drain: drain before"


def told(*lines: str) -> NewEpochs:
    epochs = NewEpochs()
    logger = logging.Logger("c2")
    logger.addHandler(epochs)
    for line in lines:
        logger.debug("%s", line)
    return epochs


@pytest.mark.parametrize(
    ("lines", "its_own"),
    [
        ((), False),
        ((ORDINARY,), False),
        (
            (SKIPPED.format("NOT_LEADER_FOR_PARTITION"), BUMP.format("skipped sequence numbers")),
            True,
        ),
        ((SKIPPED.format("NOT_LEADER_OR_FOLLOWER"), BUMP.format("skipped sequence numbers")), True),
        ((SKIPPED.format("REQUEST_TIMED_OUT"), BUMP.format("skipped sequence numbers")), False),
        ((BUMP.format("unknown producer id"),), False),
        ((BUMP.format("skipped sequence numbers"),), False),
        (("ERRSEQ: of another kind", BUMP.format("skipped sequence numbers")), False),
        (
            (
                SKIPPED.format("NOT_LEADER_FOR_PARTITION"),
                SKIPPED.format("OUT_OF_ORDER_SEQUENCE_NUMBER"),
                BUMP.format("skipped sequence numbers"),
            ),
            True,
        ),
        (
            (
                SKIPPED.format("OUT_OF_ORDER_SEQUENCE_NUMBER"),
                BUMP.format("skipped sequence numbers"),
            ),
            False,
        ),
        (
            (
                SKIPPED.format("NOT_LEADER_FOR_PARTITION"),
                BUMP.format("skipped sequence numbers"),
                BUMP.format("message sequence gap"),
            ),
            False,
        ),
    ],
)
def test_a_new_epoch_is_its_own_where_nobody_led_yet(lines: tuple[str, ...], its_own: bool) -> None:
    epochs = told(*lines)
    assert epochs.are_its_own is its_own
    assert epochs.begun == sum("epoch bump" in line for line in lines)


@pytest.mark.parametrize(
    ("epochs", "excused"), [((0, 1), True), ((0, 0), False), ((0, 1, 1), False), ((0,), False)]
)
def test_each_copy_has_an_epoch_of_its_own(
    tmp_path: Path, epochs: tuple[int, ...], excused: bool
) -> None:
    directory = tmp_path / f"{TOPIC}-3"
    directory.mkdir()
    data = b""
    for number, epoch in enumerate(epochs):
        builder = BatchBuilder(
            base_offset=number, producer_id=1, producer_epoch=epoch, base_sequence=0
        )
        builder.append(0, None, b"c2.7965", [])
        data += builder.build()
    (directory / f"{0:020d}.log").write_bytes(data)
    world: Any = SimpleNamespace(
        partitions=lambda: {3: SimpleNamespace(leader=2)},
        cluster=SimpleNamespace(nodes={2: SimpleNamespace(log_dir=tmp_path)}),
    )
    world._epochs_of = lambda *given: RecordsWorld._epochs_of(world, *given)
    known = told(
        SKIPPED.format("NOT_LEADER_FOR_PARTITION"), BUMP.format("skipped sequence numbers")
    )
    world.producers = [SimpleNamespace(name="c2", new_epochs=known)]
    found = Anomaly("duplicate", 3, "'c2.7965' is at offsets [3371, 3362]")
    assert RecordsWorld._sent_anew(world, found) is excused
    world.producers[0].new_epochs = told()
    assert not RecordsWorld._sent_anew(world, found), "it said nothing of it"
    assert not RecordsWorld._sent_anew(world, Anomaly("phantom", 3, "'c2.7965' was read"))
