"""What reset scenarios understand, without a cluster."""

import pytest

from sparkraft.cli.errors import UsageError
from sparkraft.cli.group_reset import _datetime_ms, _duration_ms


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("PT1S", 1_000),
        ("P1DT2H3M4.5S", 93_784_500),
        ("P2D", 172_800_000),
        ("-PT1M", -60_000),
        ("pt0.25s", 250),
    ],
)
def test_durations(text, ms):
    assert _duration_ms(text) == ms


@pytest.mark.parametrize("text", ["", "P", "PT", "1H", "P1H", "PT1X", "P1Y"])
def test_what_is_no_duration_is_refused(text):
    with pytest.raises(UsageError):
        _duration_ms(text)


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1970-01-01T00:00:01.500", 1_500),
        ("1970-01-01T01:00:00.000+01:00", 0),
        ("1970-01-01T00:00:00Z", 0),
    ],
)
def test_datetimes_are_utc_unless_they_say_otherwise(text, ms):
    assert _datetime_ms(text) == ms


def test_what_is_no_datetime_is_refused():
    with pytest.raises(UsageError):
        _datetime_ms("yesterday")
