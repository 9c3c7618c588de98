"""`features`: describe, upgrade, downgrade and disable feature levels, as `kafka-features.sh`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkraft.cli.errors import CommandError, UsageError
from sparkraft.cli.options import Options, Values
from sparkraft.cli.session import connected, print_json, run, warn
from sparkraft.client.admin import Admin
from sparkraft.metadata import features as levels

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparkraft.base.errors import KafkaError

_UPGRADE, _SAFE_DOWNGRADE, _UNSAFE_DOWNGRADE = 1, 2, 3
_KRAFT_VERSION_LEVEL = 21
"""metadata.version from which new clusters have kraft.version 1 (3.9-IV0)."""

_LEVEL_MAX = 0x7FFF


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
    options.values("--feature", about="feature=level; for disable the name; repeatable")
    options.value("--release-version", about="all features of a release, such as 4.3 or 4.3-IV0")
    options.value("--metadata", about="deprecated: the level of metadata.version, by name")
    options.flag("--unsafe", "downgrade even if metadata is lost")
    options.flag("--dry-run", "only ask whether it would work")
    options.output()
    values = options.parse(argv)
    match values.action:
        case "version-mapping":
            return _version_mapping(values)
        case "feature-dependencies":
            return _dependencies(values)
        case "describe":
            return run(_describe(values))
        case _:
            return run(_update(values, _wanted(values)))


def _text(feature: str, level: int) -> str:
    if feature == levels.METADATA_VERSION:
        return levels.METADATA_LEVEL_NAMES.get(level, f"UNKNOWN {level}")
    return str(level)


async def _describe(values: Values) -> int:
    async with connected(values, client_id="features") as cluster:
        found = await Admin(cluster).describe_features()
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


def _named_level(text: str) -> int:
    level = levels.level_of(text)
    if level is None:
        names = f"{levels.name_of(levels.METADATA_LEVEL_MIN)} to "
        names += levels.name_of(levels.METADATA_LEVEL_MAX)
        raise CommandError(f"{text!r} is no release or metadata.version known here: {names}")
    return level


def _of_release(text: str) -> dict[str, int]:
    """All features of a release, metadata.version first, those it does not have at 0."""
    level = _named_level(text)
    known = levels.default_levels(level)
    ordered = [levels.TRANSACTION_VERSION, levels.GROUP_VERSION, levels.ELR_VERSION]
    ordered += [levels.SHARE_VERSION, levels.STREAMS_VERSION]
    found = {levels.METADATA_VERSION: level}
    found[levels.KRAFT_VERSION] = int(level >= _KRAFT_VERSION_LEVEL)
    return found | {name: known.get(name, 0) for name in ordered}


def _wanted(values: Values) -> dict[str, int]:
    if values.release_version and (values.metadata or values.feature):
        raise UsageError("--release-version names all features already")
    if values.release_version:
        found = _of_release(values.release_version)
        is_upgrade = values.action == "upgrade"
        return {name: level for name, level in found.items() if level or not is_upgrade}
    wanted: dict[str, int] = {}
    if values.metadata:
        wanted[levels.METADATA_VERSION] = _named_level(values.metadata)
    for entry in values.feature:
        name, level = (entry, 0) if values.action == "disable" else _name_and_level(entry)
        if name in wanted:
            raise UsageError(f"{name} is given twice")
        wanted[name] = level
    if not wanted:
        raise UsageError(f"name at least one feature to {values.action}")
    return wanted


def _name_and_level(text: str) -> tuple[str, int]:
    name, equals, level = text.partition("=")
    if not equals or not level.strip().lstrip("-").isdigit() or int(level) > _LEVEL_MAX:
        raise UsageError(f"--feature wants feature=level, not {text!r}")
    return name.strip(), int(level)


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


def _version_mapping(values: Values) -> int:
    release = values.release_version or levels.name_of(levels.METADATA_LEVEL_MAX)
    found = _of_release(release)
    if values.output == "json":
        print_json(found)
        return 0
    for name, level in found.items():
        note = f" ({release})" if name == levels.METADATA_VERSION else ""
        print(f"{name}={level}{note}")
    return 0


def _dependencies(values: Values) -> int:
    if not values.feature:
        raise UsageError("missing --feature")
    for entry in values.feature:
        name, level = _name_and_level(entry)
        lowest, highest = levels.SUPPORTED_FEATURES.get(name, (1, 0))
        if not lowest <= level <= highest:
            raise CommandError(f"{name}={level} is not known here")
        needed = levels.FEATURE_DEPENDENCIES.get((name, level), {})
        if needed:
            print(f"{name}={level} requires:")
            for other, at_least in needed.items():
                print(f"    {other}={at_least}{_name_note(other, at_least)}")
        else:
            print(f"{name}={level}{_name_note(name, level)} has no dependencies.")
    return 0


def _name_note(name: str, level: int) -> str:
    return f" ({levels.name_of(level)})" if name == levels.METADATA_VERSION else ""
