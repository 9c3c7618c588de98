"""Features, releases and levels by name, for `features` and `storage` without a cluster."""

from typing import TYPE_CHECKING

from sparkraft.cli.errors import CommandError, UsageError
from sparkraft.cli.session import print_json
from sparkraft.metadata import features as levels

if TYPE_CHECKING:
    from sparkraft.cli.options import Values

_LEVEL_MAX = 0x7FFF


def level_named(text: str) -> int:
    """The metadata.version of a release (4.3) or of a name (4.3-IV0); CommandError for others."""
    level = levels.level_of(text)
    if level is None:
        names = f"{levels.name_of(levels.METADATA_LEVEL_MIN)} to "
        names += levels.name_of(levels.METADATA_LEVEL_MAX)
        raise CommandError(f"{text!r} is not a known release or metadata.version: {names}")
    return level


def name_and_level(text: str) -> tuple[str, int]:
    """Parse `feature=level` as a pair; UsageError if it is invalid."""
    name, equals, level = text.partition("=")
    if not equals or not level.strip().lstrip("-").isdigit() or int(level) > _LEVEL_MAX:
        raise UsageError(f"--feature wants feature=level, not {text!r}")
    return name.strip(), int(level)


def print_version_mapping(values: "Values") -> int:
    """Which level of each feature `values.release_version`, or the newest release, has."""
    release = values.release_version or levels.name_of(levels.METADATA_LEVEL_MAX)
    found = levels.release_levels(level_named(release))
    if values.output == "json":
        print_json(found)
        return 0
    for name, level in found.items():
        note = f" ({release})" if name == levels.METADATA_VERSION else ""
        print(f"{name}={level}{note}")
    return 0


def print_dependencies(values: "Values") -> int:
    """Print the features that each of `values.feature`, as feature=level, depends on."""
    wanted = [name_and_level(entry) for entry in values.feature]
    for name, level in wanted:
        lowest, highest = levels.SUPPORTED_FEATURES.get(name, (1, 0))
        if not lowest <= level <= highest:
            raise CommandError(f"{name}={level} is not known here")
    needs = {pair: levels.FEATURE_DEPENDENCIES.get(pair, {}) for pair in wanted}
    if values.output == "json":
        print_json(
            [
                {"feature": name, "level": level, "requires": dict(needed)}
                for (name, level), needed in needs.items()
            ]
        )
        return 0
    for (name, level), needed in needs.items():
        if needed:
            print(f"{name}={level} requires:")
            for other, at_least in needed.items():
                print(f"    {other}={at_least}{_name_note(other, at_least)}")
        else:
            print(f"{name}={level}{_name_note(name, level)} has no dependencies.")
    return 0


def _name_note(name: str, level: int) -> str:
    return f" ({levels.name_of(level)})" if name == levels.METADATA_VERSION else ""
