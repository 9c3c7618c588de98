"""`leader-election`: elects partition leaders now, as `kafka-leader-election.sh`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.cli.errors import CommandError, UsageError
from sparkraft.cli.options import Options, Values, exactly_one
from sparkraft.cli.session import connected, print_json, run, with_old_config
from sparkraft.client.errors import sentence_of
from sparkraft.client.leadership import PREFERRED, UNCLEAN, LeadershipAdmin

if TYPE_CHECKING:
    from sparkraft.base.ids import TopicPartition

_KINDS = {"preferred": PREFERRED, "unclean": UNCLEAN}


def main(argv: list[str]) -> int:
    """Elect; 1 if some partition got no leader."""
    options = Options(
        "leader-election",
        "Elects the preferred replicas as leaders, or any live replica of partitions without a "
        "leader (which may lose records).",
    )
    options.connection()
    options.old_config("--admin.config")
    options.value(
        "--election-type",
        about="preferred, or unclean: any live replica of a partition without a leader",
        required=True,
        choices=list(_KINDS),
        type=str.lower,
    )
    options.value("--topic", about="a topic, with --partition")
    options.value("--partition", about="its partition", type=int)
    options.flag("--all-topic-partitions", "all partitions that need it")
    options.value(
        "--path-to-json-file",
        about='{"partitions": [{"topic": "foo", "partition": 1}]}',
        metavar="FILE",
    )
    options.output()
    values = options.parse(argv)
    exactly_one(values, ["--topic", "--all-topic-partitions", "--path-to-json-file"])
    if (values.topic is None) != (values.partition is None):
        raise UsageError("--topic and --partition go together")
    with_old_config(values, "--admin.config")
    return run(_main(values))


async def _main(values: Values) -> int:
    wanted = _wanted(values)
    async with connected(values, client_id="leader-election-tool") as cluster:
        outcome = await LeadershipAdmin(cluster).elect_leaders(_KINDS[values.election_type], wanted)
    done = [tp for tp in sorted(outcome) if outcome[tp] is None]
    refused = {tp: error for tp in sorted(outcome) if (error := outcome[tp]) is not None}
    needless = [tp for tp, e in refused.items() if e.code is ErrorCode.ELECTION_NOT_NEEDED]
    failed = {tp: error for tp, error in refused.items() if tp not in needless}
    if values.output == "json":
        print_json(
            {
                "elected": [_json(tp) for tp in done],
                "notNeeded": [_json(tp) for tp in needless],
                "failed": [{**_json(tp), "error": sentence_of(e)} for tp, e in failed.items()],
            }
        )
    else:
        _print(values.election_type.upper(), done, needless, failed)
    if failed:
        raise CommandError(f"{len(failed)} replica(s) could not be elected")
    return 0


def _print(
    kind: str,
    done: list[TopicPartition],
    needless: list[TopicPartition],
    failed: dict[TopicPartition, KafkaError],
) -> None:
    if done:
        print(f"Successfully completed leader election ({kind}) for partitions {_names(done)}")
    if needless:
        print(f"Valid replica already elected for partitions {_names(needless)}")
    for (topic, index), error in failed.items():
        print(
            f"Error completing leader election ({kind}) for partition: {topic}-{index}: "
            f"{_java_name(error.code)}: {error.detail}"
        )


def _java_name(code: ErrorCode) -> str:
    """Kafka's tool prints the exception; scripts look for its name."""
    words = "".join(word.capitalize() for word in code.name.split("_"))
    return f"org.apache.kafka.common.errors.{words}Exception"


def _names(partitions: list[TopicPartition]) -> str:
    return ", ".join(f"{topic}-{index}" for topic, index in partitions)


def _json(tp: TopicPartition) -> dict[str, object]:
    return {"topic": tp[0], "partition": tp[1]}


def _wanted(values: Values) -> list[TopicPartition] | None:
    if values.all_topic_partitions:
        return None
    if values.path_to_json_file is None:
        return [(values.topic, values.partition)]
    try:
        data = json.loads(Path(values.path_to_json_file).read_text(encoding="utf-8"))
        found = [(str(entry["topic"]), int(entry["partition"])) for entry in data["partitions"]]
    except (ValueError, KeyError, TypeError) as error:
        raise CommandError(
            f'{values.path_to_json_file} does not hold {{"partitions": [{{"topic": …, '
            f'"partition": …}}]}}: {error!r}'
        ) from error
    twice = sorted({tp for tp in found if found.count(tp) > 1})
    if twice:
        raise CommandError(f"Replica election data contains duplicate partitions: {_names(twice)}")
    return found
