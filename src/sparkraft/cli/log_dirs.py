"""`log-dirs`: describes the brokers' log directories, as `kafka-log-dirs.sh`."""

import json
from typing import Any

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.cli.errors import CommandError, UsageError
from sparkraft.cli.options import Options, Values, numbers
from sparkraft.cli.session import connected, print_json, run
from sparkraft.client.admin import Admin
from sparkraft.client.values import LogDir

_ERRORS = {ErrorCode.KAFKA_STORAGE_ERROR: "org.apache.kafka.common.errors.KafkaStorageException"}
"""Kafka's tool prints the name of an exception's class; a directory has no other."""


def main(argv: list[str]) -> int:
    """Describe them."""
    options = Options("log-dirs", "Shows the brokers' log directories and the replicas in them.")
    options.connection()
    options.flag("--describe", "describe the log directories")
    options.value("--broker-list", about="brokers between commas; all by default", default="")
    options.value("--topic-list", about="topics between commas; all by default", default="")
    options.output()
    values = options.parse(argv)
    if not values.describe:
        raise UsageError("missing --describe, the only thing it does")
    return run(_main(values))


async def _main(values: Values) -> int:
    is_text = values.output == "text"
    async with connected(values, client_id="log-dirs-tool") as cluster:
        admin = Admin(cluster)
        known = {node.id for node in (await admin.describe_cluster()).nodes}
        wanted = set(numbers(values.broker_list, "--broker-list")) or known
        if wanted - known:
            raise CommandError(
                f"no such brokers: {_join(wanted - known)}; there are: {_join(known)}"
            )
        if is_text:
            print("Querying brokers for log directories information")
        topics = [name.strip() for name in values.topic_list.split(",") if name.strip()]
        found = await admin.describe_log_dirs(sorted(wanted), topics=topics or None)
    shown = {"version": 1, "brokers": [_broker(broker, dirs) for broker, dirs in found.items()]}
    if is_text:
        print(f"Received log directory information from brokers {_join(wanted)}")
        print(json.dumps(shown, separators=(",", ":")))
    else:
        print_json(shown)
    return 0


def _join(ids: set[int]) -> str:
    return ",".join(map(str, sorted(ids)))


def _broker(broker: int, dirs: list[LogDir] | KafkaError) -> dict[str, Any]:
    if isinstance(dirs, KafkaError):
        raise dirs
    return {"broker": broker, "logDirs": [_dir(log_dir) for log_dir in dirs]}


def _dir(log_dir: LogDir) -> dict[str, Any]:
    return {
        "logDir": log_dir.path,
        "error": None
        if log_dir.error is ErrorCode.NONE
        else _ERRORS.get(log_dir.error, log_dir.error.name),
        "partitions": [
            {
                "partition": f"{replica.topic}-{replica.partition}",
                "size": replica.size,
                "offsetLag": replica.offset_lag,
                "isFuture": replica.is_future,
            }
            for replica in sorted(log_dir.replicas, key=lambda r: (r.topic, r.partition))
        ],
    }
