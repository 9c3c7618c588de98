"""`get-offsets`: first, last and by-time offsets of partitions, as `kafka-get-offsets.sh`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkraft.base.errors import KafkaError
from sparkraft.cli.errors import CommandError, UsageError
from sparkraft.cli.names import INTERNAL_TOPICS, PartitionFilter, TopicFilter
from sparkraft.cli.options import Options, Values, numbers
from sparkraft.cli.session import connected, print_json, run, warn
from sparkraft.client.admin import Admin
from sparkraft.client.errors import sentence_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sparkraft.client.cluster import TopicInfo

_NAMED_TIMES = {
    "latest": -1,
    "earliest": -2,
    "max-timestamp": -3,
    "earliest-local": -4,
    "latest-tiered": -5,
    "earliest-pending-upload": -6,
}


def _options() -> Options:
    options = Options("get-offsets", "Prints topic:partition:offset.")
    options.connection()
    options.value("--topic", about="a topic or a regular expression; all topics by default")
    options.value("--partitions", about="partitions between commas; all by default")
    options.value(
        "--topic-partitions",
        about="instead of both: topic1:1,topic2:0-3,topic3,topic4:5-,topic5:-3",
    )
    options.value(
        "--time",
        about="a timestamp in ms, or -1 latest, -2 earliest, -3 max-timestamp, -4 earliest-local, "
        "-5 latest-tiered, -6 earliest-pending-upload (default latest)",
        default="latest",
    )
    options.flag("--exclude-internal-topics", "leave out internal topics")
    options.output()
    return options


def main(argv: list[str]) -> int:
    """Print offsets."""
    values = _options().parse(argv)
    if values.topic_partitions and (values.topic or values.partitions):
        raise UsageError("--topic-partitions replaces --topic and --partitions")
    return run(_main(values))


def _time(text: str) -> int:
    if text in _NAMED_TIMES:
        return _NAMED_TIMES[text]
    try:
        return int(text)
    except ValueError:
        names = ", ".join(_NAMED_TIMES)
        raise UsageError(f"--time wants ms or one of {names}, not {text!r}") from None


async def _main(values: Values) -> int:
    time = _time(values.time)
    async with connected(values, client_id="GetOffsetShell") as cluster:
        admin = Admin(cluster)
        wanted = list(_matching((await admin.list_topics()).values(), values))
        if not wanted:
            raise CommandError("no partition fits --topic, --partitions or --topic-partitions")
        found = await admin.list_offsets(dict.fromkeys(wanted, time))
    rows = []
    for topic, partition in sorted(wanted, key=lambda tp: f"{tp[0]}-{tp[1]}"):
        answer = found[topic, partition]
        if isinstance(answer, KafkaError):
            warn(f"{topic}-{partition} is left out: {sentence_of(answer)}")
        elif answer.offset >= 0:
            rows.append({"topic": topic, "partition": partition, "offset": answer.offset})
    if values.output == "json":
        print_json(rows)
    else:
        for row in rows:
            print(f"{row['topic']}:{row['partition']}:{row['offset']}")
    return 0


def _matching(topics: Iterable[TopicInfo], values: Values) -> Iterable[tuple[str, int]]:
    rules = PartitionFilter(values.topic_partitions) if values.topic_partitions else None
    by_name = TopicFilter(values.topic or ".*")
    indexes = set(numbers(values.partitions or "", "--partitions"))
    for topic in topics:
        if values.exclude_internal_topics and topic.name in INTERNAL_TOPICS:
            continue
        for index in topic.partitions:
            if rules is not None:
                if rules.allows(topic.name, index):
                    yield topic.name, index
            elif by_name.allows(topic.name, exclude_internal=False) and (
                not indexes or index in indexes
            ):
                yield topic.name, index
