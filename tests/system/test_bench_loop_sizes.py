"""What `./bench loop` requests is as large as its rows say."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from benchmarks import loop_api_rows, loop_more_rows

NODE = SimpleNamespace(port=0)


@pytest.fixture(autouse=True)
def _no_node(monkeypatch):
    for module in (loop_api_rows, loop_more_rows):
        monkeypatch.setattr(module, "create_topic", lambda *_: None)
        monkeypatch.setattr(module, "commit", lambda *_, **__: None)
        monkeypatch.setattr(module, "request", lambda key, _, message: (key, message))


def test_a_group_is_named_20_000_times():
    requests = [message for _, message in loop_api_rows.offsets(NODE)]
    assert [len(message.groups) for message in requests] == [20_000, 500]


def test_2_500_partitions_of_a_group_are_named_and_each_answer_is_timed(monkeypatch):
    asked = []

    def asking(_port, frames, _clients):
        asked.extend(frames)
        return nullcontext(answers)

    answers = SimpleNamespace(seconds=[9.0])

    def latencies():
        answers.seconds += [0.001, 0.002, 0.003]
        return [1.0]

    monkeypatch.setattr(loop_api_rows.time, "sleep", lambda _: None)
    monkeypatch.setattr(loop_api_rows, "Asking", asking)
    monkeypatch.setattr(loop_api_rows, "Probe", lambda *_: SimpleNamespace(latencies=latencies))
    outcome = loop_api_rows.commits(NODE, 0)
    assert outcome.figures == {"OffsetFetch p50 ms": 2.0}
    ((_, message),) = asked
    assert len(message.groups[0].topics[0].partition_indexes) == 2_500


def test_500_000_unknown_partitions_are_fetched():
    ((_, message),) = loop_api_rows.unknown(NODE)
    assert len(message.topics[0].partitions) == 500_000


def test_every_described_partition_has_producers(monkeypatch):
    produced = []
    codes = [0, 6]  # the first request finds a partition that is not led yet

    def ask(_port, _key, _version, message):
        produced.append(message)
        parts = [SimpleNamespace(error_code=code) for code in codes]
        del codes[1:]
        return b"", SimpleNamespace(responses=[SimpleNamespace(partition_responses=parts)])

    monkeypatch.setattr(loop_more_rows, "ask", ask)
    ((_, message),) = loop_more_rows.producers(NODE)
    assert len(message.topics[0].partition_indexes) == 1_000
    assert produced[0] is produced[1]
    assert len(produced) == 21
    assert {len(one.topic_data[0].partition_data) for one in produced} == {1_000}


def test_all_our_own_keys_of_a_broker_are_asked():
    keys = [int(key) for key, _ in loop_more_rows.own(NODE)]
    assert keys == [10_000, 10_002, 10_003, 10_004, 10_005, 10_006]
