"""`delete-records`: deletes records below offsets in a JSON file, as `kafka-delete-records.sh`."""

import json
from pathlib import Path
from typing import Any

from sparkraft.base.errors import KafkaError
from sparkraft.cli.errors import CommandError
from sparkraft.cli.options import Options, Values
from sparkraft.cli.session import connected, print_json, run
from sparkraft.client.admin import Admin
from sparkraft.client.errors import sentence_of


def main(argv: list[str]) -> int:
    """Delete; 1 if some partition refused."""
    options = Options("delete-records", "Deletes records of partitions below an offset.")
    options.connection()
    options.value(
        "--offset-json-file",
        about='{"partitions": [{"topic": "t", "partition": 0, "offset": 5}], "version": 1}; '
        "offset -1 deletes all there are",
        required=True,
        metavar="FILE",
    )
    options.output()
    return run(_main(options.parse(argv)))


async def _main(values: Values) -> int:
    before = _read(values.offset_json_file)
    async with connected(values, client_id="delete-records") as cluster:
        if values.output == "text":
            print("Executing records delete operation")
        outcome = await Admin(cluster).delete_records(before)
    if values.output == "json":
        print_json([_as_json(tp, outcome[tp]) for tp in before])
    else:
        print("Records delete operation completed:")
        for topic, partition in before:
            answer = outcome[topic, partition]
            told = f"low_watermark: {answer}"
            if isinstance(answer, KafkaError):
                told = f"error: {sentence_of(answer)}"
            print(f"partition: {topic}-{partition}\t{told}")
    return int(any(isinstance(answer, KafkaError) for answer in outcome.values()))


def _as_json(tp: tuple[str, int], answer: int | KafkaError) -> dict[str, Any]:
    is_error = isinstance(answer, KafkaError)
    return {
        "topic": tp[0],
        "partition": tp[1],
        "lowWatermark": None if is_error else answer,
        "error": sentence_of(answer) if isinstance(answer, KafkaError) else None,
    }


def _read(path: str) -> dict[tuple[str, int], int]:
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
        if data.get("version", 1) != 1:
            raise CommandError(f"{path} has version {data['version']}; only 1 is known")
        entries = [
            ((str(e["topic"]), int(e["partition"])), int(e["offset"])) for e in data["partitions"]
        ]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CommandError(
            f"{path} does not hold what is expected ({error!r}); `--help` shows the form"
        ) from error
    found = dict(entries)
    if len(found) != len(entries):
        raise CommandError(f"{path} names a partition twice")
    return found
