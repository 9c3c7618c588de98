"""`zookeeper-migration check | records | status`: the way from ZooKeeper to KRaft (KIP-866).

`check` prints which conditions of a migration are met, and exits with 1 unless all are. `records`
prints what a migration would write to the metadata log, one JSON object per line, without secrets.
`status` prints how far a migration is, and what its operator does next. All only read znodes.
"""

import asyncio
import json
from collections import Counter

from sparkraft.cli.errors import CommandError
from sparkraft.cli.options import Options
from sparkraft.cli.session import print_json
from sparkraft.cli.zookeeper_session import add_security, ensemble_session
from sparkraft.metadata.redaction import redacted
from sparkraft.protocol.json_form import to_json
from sparkraft.server.env import SystemEntropy
from sparkraft.zookeeper.errors import ZooKeeperError
from sparkraft.zookeeper.migration.conditions import conditions_of
from sparkraft.zookeeper.migration.progress import progress_of
from sparkraft.zookeeper.migration.reading import read_tree
from sparkraft.zookeeper.migration.records import batches_of
from sparkraft.zookeeper.migration.tree import ZnodeTree
from sparkraft.zookeeper.znodes.cluster import CLUSTER_ID
from sparkraft.zookeeper.znodes.json_form import ZnodeError


def main(argv: list[str]) -> int:
    """Do one action."""
    options = Options("zookeeper-migration", "Checks a cluster before and during a migration.")
    options.add_argument("action", choices=["check", "records", "status"])
    options.value(
        "--zookeeper", about="the ensemble's servers", metavar="HOST:PORT[/chroot]", required=True
    )
    options.value("--output", about="text or json", choices=["text", "json"], default="text")
    add_security(options)
    values = options.parse(argv)
    tree = asyncio.run(_read(values.zookeeper, values.zk_tls_config_file))
    if CLUSTER_ID not in tree:
        raise CommandError(f"no Kafka cluster in {values.zookeeper}")
    as_json = values.output == "json"
    try:
        if values.action == "check":
            return _check(tree, as_json=as_json)
        return (
            _print_records(tree) if values.action == "records" else _status(tree, as_json=as_json)
        )
    except ZnodeError as error:
        raise CommandError(f"{error.path}: {error.reason}") from error


async def _read(server: str, file: str | None) -> ZnodeTree:
    try:
        async with ensemble_session(server, file) as client:
            return await read_tree(client)
    except ZooKeeperError as error:
        raise CommandError(str(error)) from error


def _check(tree: ZnodeTree, *, as_json: bool) -> int:
    conditions = conditions_of(tree)
    is_ready = all(each.obstacle is None for each in conditions)
    counts = _counts(tree) if is_ready else {}
    if as_json:
        shown = [{"condition": each.text, "obstacle": each.obstacle} for each in conditions]
        print_json({"isReady": is_ready, "conditions": shown, "records": counts})
        return 0 if is_ready else 1
    for each in conditions:
        print(f"{'ok ' if each.obstacle is None else 'NO '} {each.text}", end="")
        print("" if each.obstacle is None else f": {each.obstacle}")
    if is_ready:
        found = ", ".join(f"{count} {name}" for name, count in counts.items())
        print(f"A migration writes {sum(counts.values())} records: {found or 'none'}")
    return 0 if is_ready else 1


def _counts(tree: ZnodeTree) -> dict[str, int]:
    batches = batches_of(tree, SystemEntropy())
    return dict(Counter(type(record).__name__ for batch in batches for record, _ in batch))


def _print_records(tree: ZnodeTree) -> int:
    for batch in batches_of(tree, SystemEntropy()):
        for record, version in batch:
            shown = {
                "type": type(record).__name__,
                "version": version,
                "data": to_json(redacted(record), version),
            }
            print(json.dumps(shown, ensure_ascii=False))
    return 0


def _status(tree: ZnodeTree, *, as_json: bool) -> int:
    progress = progress_of(tree)
    if as_json:
        print_json(
            {
                "stage": progress.stage.value,
                "controller": progress.controller,
                "zookeeperBrokers": progress.brokers,
                "metadataOffset": progress.metadata_offset,
                "nextStep": progress.next_step,
            }
        )
        return 0
    brokers = ", ".join(map(str, progress.brokers)) or "none"
    print(f"Stage:      {progress.stage.value}")
    print(f"Controller: {progress.controller}")
    print(f"Brokers:    {brokers} (in ZooKeeper)")
    offset = progress.metadata_offset
    print(f"Copied:     {'nothing' if offset < 0 else f'up to offset {offset}'}")
    print(f"Next step:  {progress.next_step}")
    return 0
