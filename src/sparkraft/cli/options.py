"""Command-line options as Kafka's tools take them: long names, repeatable, nothing abbreviated."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any, NoReturn

from sparkraft import __version__
from sparkraft.cli.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Values = argparse.Namespace
"""Parsed options: `--bootstrap-server` is `bootstrap_server`."""


class Options(argparse.ArgumentParser):
    """The options of one command; misuse raises `UsageError`."""

    def __init__(self, command: str, about: str, **kwargs: Any) -> None:
        """Start with `--help` and `--version`."""
        kwargs.setdefault("prog", f"sparkraft {command}")
        super().__init__(
            description=about,
            allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            **kwargs,
        )
        self.add_argument(
            "--version", action="version", version=__version__, help="print sparkraft's version"
        )

    def error(self, message: str) -> NoReturn:
        """Misuse."""
        raise UsageError(message.replace("the following arguments are required:", "missing"))

    def parse(self, argv: Sequence[str]) -> Values:
        """The options in `argv`; an unknown one is named with the nearest that exists."""
        values, left = self.parse_known_args(argv)
        for extra in left:
            raise UsageError(self._complaint(extra))
        return values

    def _complaint(self, extra: str) -> str:
        if not extra.startswith("-"):
            return f"{extra!r} belongs to no option"
        from difflib import get_close_matches

        name = extra.split("=", 1)[0]
        near = get_close_matches(name, self._option_string_actions, n=1, cutoff=0.5)
        hint = f"; did you mean {near[0]}?" if near else ""
        return f"unknown option {name}{hint}"

    def flag(self, name: str, about: str) -> None:
        """An option without a value."""
        self.add_argument(name, action="store_true", help=about)

    def value(self, *names: str, about: str, **kwargs: Any) -> None:
        """An option with a value."""
        self.add_argument(*names, help=about, **kwargs)

    def values(self, *names: str, about: str, **kwargs: Any) -> None:
        """An option that may be given several times."""
        self.add_argument(*names, help=about, action="append", default=[], **kwargs)

    def connection(self, *, controllers: bool = False, required: bool = True) -> None:
        """`--bootstrap-server`, `--command-config` and, if requested, `--bootstrap-controller`."""
        self.value(
            "--bootstrap-server",
            about="the servers to connect to: host:port,host:port",
            metavar="HOST:PORT",
            required=required and not controllers,
        )
        if controllers:
            self.value(
                "--bootstrap-controller",
                about="the controllers to connect to, instead of servers",
                metavar="HOST:PORT",
            )
        self.value(
            "--command-config",
            about="a properties file with client configs, such as security.protocol, "
            "sasl.jaas.config and request.timeout.ms",
            metavar="FILE",
        )

    def old_config(self, name: str) -> None:
        """The former name of `--command-config` (KIP-1147); see `session.with_old_config`."""
        self.value(name, about="deprecated: --command-config", metavar="FILE", dest="old_config")

    def output(self) -> None:
        """`--output text|json`."""
        self.value(
            "--output",
            about="text as Kafka's tool prints it (default), or json",
            choices=["text", "json"],
            default="text",
        )


def exactly_one(values: Values, names: Iterable[str]) -> str:
    """The one option of `names` that is given; `UsageError` for none and for several."""
    wanted = list(names)
    given = [name for name in wanted if getattr(values, _field(name)) not in {None, False}]
    if len(given) != 1:
        raise UsageError(f"give exactly one of {', '.join(wanted)}")
    return given[0]


def _field(name: str) -> str:
    return name.lstrip("-").replace("-", "_").replace(".", "_")


def only_with(values: Values, options: Iterable[str], action: str) -> None:
    """Refuse `options` unless `action` is among the given."""
    if getattr(values, _field(action)):
        return
    for name in options:
        if getattr(values, _field(name)) not in (None, False, []):
            raise UsageError(f"{name} goes only with {action}")


def key_values(entries: Iterable[str], option: str) -> dict[str, str]:
    """`key=value` entries as a dict."""
    found: dict[str, str] = {}
    for entry in entries:
        key, equals, value = entry.partition("=")
        if not equals or not key.strip():
            raise UsageError(f"{option} wants key=value, not {entry!r}")
        found[key.strip()] = value.strip()
    return found


def numbers(text: str, option: str) -> list[int]:
    """Whole numbers between commas."""
    try:
        return [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise UsageError(f"{option} wants numbers between commas, not {text!r}") from None
