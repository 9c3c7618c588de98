"""`features`: describe, upgrade, downgrade and disable feature levels, as `kafka-features.sh`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkraft.cli.errors import UsageError
from sparkraft.cli.feature_levels import (
    level_named,
    name_and_level,
    print_dependencies,
    print_version_mapping,
)
from sparkraft.cli.options import Options, Values
from sparkraft.cli.session import connected, print_json, run, warn
from sparkraft.client.admin import Admin
from sparkraft.metadata import features as levels

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparkraft.base.errors import KafkaError

_UPGRADE, _SAFE_DOWNGRADE, _UNSAFE_DOWNGRADE = 1, 2, 3


def main(argv: list[str]) -> int:
    """Do one action."""
    options = Options("features", "Shows and changes feature levels.")
    options.add_argument(
        "action",
        choices=[
            "describe",
            "upgrade",
            "downgrade",
            "disable",
            "version-mapping",
            "feature-dependencies",
        ],
    )
    options.connection(controllers=True)
    options.value("--node-id", about="describe: ask this node (default: any)", type=int)
    options.values("--feature", about="feature=level; for disable the name; repeatable")
    options.value("--release-version", about="all features of a release, such as 4.3 or 4.3-IV0")
    options.value("--metadata", about="deprecated: the level of metadata.version, by name")
    options.flag("--unsafe", "downgrade even if metadata is lost")
    options.flag("--dry-run", "only ask whether it would work")
    options.output()
    values = options.parse(argv)
    _check_node_id(values)
    match values.action:
        case "version-mapping":
            return print_version_mapping(values)
        case "feature-dependencies":
            if not values.feature:
                raise UsageError("missing --feature")
            return print_dependencies(values)
        case "describe":
            return run(_describe(values))
        case _:
            return run(_update(values, _wanted(values)))


def _check_node_id(values: Values) -> None:
    if values.node_id is None:
        return
    if values.action != "describe":
        raise UsageError("--node-id goes only with describe")
    if values.node_id < 0:
        raise UsageError(f"--node-id {values.node_id} is negative")


def _text(feature: str, level: int) -> str:
    if feature == levels.METADATA_VERSION:
        return levels.METADATA_LEVEL_NAMES.get(level, f"UNKNOWN {level}")
    return str(level)


async def _describe(values: Values) -> int:
    async with connected(values, client_id="features") as cluster:
        found = await Admin(cluster).describe_features(values.node_id)
    rows = []
    for name, (lowest, highest) in sorted(found.supported.items()):
        rows.append(
            {
                "feature": name,
                "supportedMinVersion": _text(name, lowest),
                "supportedMaxVersion": _text(name, highest),
                "finalizedVersionLevel": _text(name, found.finalized.get(name, 0)),
                "epoch": found.epoch if found.epoch >= 0 else None,
            }
        )
    if values.output == "json":
        print_json(rows)
        return 0
    for row in rows:
        epoch = "-" if row["epoch"] is None else row["epoch"]
        print(
            f"Feature: {row['feature']:<40}  SupportedMinVersion: {row['supportedMinVersion']:<15}"
            f"  SupportedMaxVersion: {row['supportedMaxVersion']:<15}"
            f"  FinalizedVersionLevel: {row['finalizedVersionLevel']:<15}  Epoch: {epoch}"
        )
    return 0


def _wanted(values: Values) -> dict[str, int]:
    if values.release_version and (values.metadata or values.feature):
        raise UsageError("--release-version names all features already")
    if values.release_version:
        found = levels.release_levels(level_named(values.release_version))
        is_upgrade = values.action == "upgrade"
        return {name: level for name, level in found.items() if level or not is_upgrade}
    wanted: dict[str, int] = {}
    if values.metadata:
        wanted[levels.METADATA_VERSION] = level_named(values.metadata)
    for entry in values.feature:
        name, level = (entry, 0) if values.action == "disable" else name_and_level(entry)
        if name in wanted:
            raise UsageError(f"{name} is given twice")
        wanted[name] = level
    if not wanted:
        raise UsageError(f"name at least one feature to {values.action}")
    return wanted


async def _update(values: Values, wanted: Mapping[str, int]) -> int:
    upgrade_type = _UPGRADE
    if values.action != "upgrade":
        upgrade_type = _UNSAFE_DOWNGRADE if values.unsafe else _SAFE_DOWNGRADE
    async with connected(values, client_id="features") as cluster:
        outcome = await Admin(cluster).update_features(
            wanted, upgrade_type=upgrade_type, validate_only=values.dry_run
        )
    failed = {name: error for name, error in outcome.items() if error is not None}
    if values.output == "json":
        print_json(
            [
                {"feature": name, "level": wanted[name], "error": _reason(outcome[name])}
                for name in sorted(wanted)
            ]
        )
    else:
        for name in sorted(wanted):
            print(_told(values, name, wanted[name], outcome[name]))
    if failed:
        warn(f"{len(failed)} out of {len(wanted)} operation(s) failed.")
    return int(bool(failed))


def _told(values: Values, name: str, level: int, error: KafkaError | None) -> str:
    is_disable = values.action == "disable"
    if error is None:
        verb = "can be" if values.dry_run else "was"
        done = "disabled" if is_disable else f"{values.action}d to {level}"
        return f"{name} {verb} {done}."
    start = "Can not" if values.dry_run else "Could not"
    what = f"disable {name}" if is_disable else f"{values.action} {name} to {level}"
    return f"{start} {what}. {_reason(error)}"


def _reason(error: KafkaError | None) -> str | None:
    return None if error is None else error.detail or error.code.name
