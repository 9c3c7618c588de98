"""Lines into records, without a cluster."""

import pytest

from sparkraft.cli.console_producer import LineReader
from sparkraft.cli.errors import CommandError, UsageError


def test_a_plain_line_is_a_value():
    assert LineReader.of({}).read("a\tb", 1) == (None, b"a\tb", [])


def test_headers_key_and_value():
    reader = LineReader.of({"parse.key": "true", "parse.headers": "true"})
    assert reader.read("h1:a,h2:b:c\tk\tv\tw", 1) == (
        b"k",
        b"v\tw",
        [("h1", b"a"), ("h2", b"b:c")],
    )


def test_the_null_marker_makes_nulls():
    reader = LineReader.of({"parse.key": "true", "parse.headers": "true", "null.marker": "N"})
    assert reader.read("h:N\tN\tN", 1) == (None, None, [("h", None)])
    assert reader.read("N\tk\tv", 1) == (b"k", b"v", [])


def test_a_missing_separator_is_an_error_unless_errors_are_ignored():
    with pytest.raises(CommandError, match="line 8 has no"):
        LineReader.of({"parse.key": "true"}).read("novalue", 8)
    lenient = LineReader.of({"parse.key": "true", "ignore.error": "true"})
    assert lenient.read("novalue", 8) == (None, b"novalue", [])


@pytest.mark.parametrize(
    "properties",
    [
        {"headers.separator": ":"},
        {"headers.delimiter": ","},
        {"null.marker": "\t"},
        {"parse.keys": "true"},
    ],
)
def test_settings_that_contradict_themselves_are_refused(properties):
    with pytest.raises(UsageError):
        LineReader.of(properties)
