"""Where our answers may differ from Apache Kafka's, and why.

A line under test reads `API vN: case | path: Kafka …, we …`.
"""

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Allowed:
    """One difference that is meant.

    Args:
        pattern: found in the line that reports it.
        reason: why it is right that we differ.
    """

    pattern: re.Pattern[str]
    reason: str


ALLOWED: tuple[Allowed, ...] = (
    Allowed(
        re.compile(r"^ApiVersions v\d: .* \| \.apiKeys: "),
        "Only what is served is advertised; COVERAGE.md lists what is not served yet.",
    ),
    Allowed(
        re.compile(r"rrorMessage: Kafka None, we 'a sentence'$"),
        "Where Kafka gives a bare code, we say why as well; clients show the text to people.",
    ),
    Allowed(
        re.compile(r"^Produce v9: no records \| answer: Kafka 'no answer in time'"),
        "Kafka never answers a partition without records and leaves the client to its timeout.",
    ),
    Allowed(
        re.compile(r"^IncrementalAlterConfigs v\d: bad operation \| .*errorCode: Kafka -1, we 42$"),
        "Kafka trips over an unknown operation (UNKNOWN_SERVER_ERROR); it is an INVALID_REQUEST.",
    ),
    Allowed(
        re.compile(r"^Produce v\d+: nonsense: (no producer|no id|the smallest) \| "),
        "Kafka appends transactional batches without a producer id, in no transaction.",
    ),
    Allowed(
        re.compile(
            r"^WriteTxnMarkers v\d: nonsense: (no producer|no epoch) \| .*: Kafka -1, we 42$"
        ),
        "Kafka trips over them (UNKNOWN_SERVER_ERROR); it is an INVALID_REQUEST.",
    ),
    Allowed(
        re.compile(
            r"^AddPartitionsToTxn v\d: one place twice \| .*esults: Kafka \[|AndBelow: Kafka \["
        ),
        "A topic that a request names twice has one result, with each partition once.",
    ),
    Allowed(
        re.compile(r"nested repetitions \| "),
        "Their product is bounded here (ARCHITECTURE.md); in Kafka each repetition alone.",
    ),
)
