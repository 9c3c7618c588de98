"""Makes two answers comparable: what the nodes may name differently gets a common name.

Topic ids become their topic's name, addresses and ports become words, member and producer ids
become labels, clocks become "a time". Everything else stays, and must be equal.
"""

import re
from typing import Any

from sparkraft.base.ids import Uuid
from tests.interop.differential.world import World

_ADDRESS = frozenset({"host", "port", "clientHost"})
_TIMES = frozenset(
    {
        "logAppendTimeMs",
        "lastTimestamp",
        "lastFetchTimestamp",
        "lastCaughtUpTimestamp",
        "transactionStartTimeMs",
    }
)
_SIZES = frozenset({"totalBytes", "usableBytes"})
_OWN_IDS = frozenset({"replicaDirectoryId", "voterDirectoryId", "finalizedFeaturesEpoch"})
_OWN_COUNTS = frozenset({"highWatermark", "logEndOffset", "leaderEpoch"})
_ORDERED_BY = (
    "apiKey", "name", "configName", "partitionIndex", "partition", "partitionId", "index",
    "groupId", "brokerId", "resourceName", "feature", "topic", "nodeId", "memberId", "topicName",
    "topicId", "resourceType", "configSource", "user", "mechanism", "entityType", "transactionalId",
)  # fmt: skip
_KEEPS_ORDER = frozenset({"resources"})


def normalise(world: World, answer: Any, name: str = "") -> Any:
    """`answer` with this world's own names replaced."""
    if isinstance(answer, dict):
        if "currentVoters" in answer:  # How long the metadata log is by now is its own affair.
            answer = _without_progress(answer)
        return {key: normalise(world, value, key) for key, value in answer.items()}
    if isinstance(answer, list):
        entries = [normalise(world, entry, name) for entry in answer]
        return entries if name in _KEEPS_ORDER else sorted(entries, key=_place)
    return _leaf(world, answer, name)


def _without_progress(quorum: dict[str, Any]) -> dict[str, Any]:
    voters = [
        {key: value for key, value in voter.items() if key not in _OWN_COUNTS}
        for voter in quorum["currentVoters"]
    ]
    kept = {key: value for key, value in quorum.items() if key not in _OWN_COUNTS}
    return {**kept, "currentVoters": voters}


def _place(entry: Any) -> tuple[str, ...]:
    """Where an entry of an unordered array stands; arrays of plain values are sorted by value."""
    if not isinstance(entry, dict):
        return (f"{entry:020}" if isinstance(entry, int) else str(entry),)
    place = tuple(
        f"{value:020}" if isinstance(value, int) else str(value)
        for value in (entry.get(key, "") for key in _ORDERED_BY)
    )
    return (*place, str(entry))  # Producers have no name but their own ids.


def _leaf(world: World, value: Any, name: str) -> Any:  # noqa: C901, PLR0911 (one return a kind)
    if name in _ADDRESS:
        return f"its {name}"
    if name in _TIMES:
        return "a time" if isinstance(value, int) and value > 10**12 else value
    if name in _SIZES:
        return "bytes"
    if name in _OWN_IDS:
        return "an id"
    if name == "topicId":
        return _topic(world, str(value))
    if name in {"memberId", "leader"} and isinstance(value, str):
        return _member(world, value)
    if name == "producerId" and isinstance(value, int) and value >= 0:
        return "a producer id"
    if name == "sessionId" and value:
        return "a session"
    if name == "logDir":
        return "the log dir"
    if name in {"errorMessage", "batchIndexErrorMessage"}:
        return None if value in {None, ""} else "a sentence"
    if isinstance(value, str):
        return world.neutral(value)
    return value


def _topic(world: World, text: str) -> str:
    for topic, topic_id in world.topic_ids.items():
        if str(topic_id) == text or str(Uuid(topic_id)) == text:
            return f"id of {topic}"
    return "no id" if text == str(Uuid.ZERO) else "some id"


def _member(world: World, text: str) -> str:
    for label, member in world.members.items():
        if member == text:
            return f"member {label}"
    return re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}", "UUID", text)
