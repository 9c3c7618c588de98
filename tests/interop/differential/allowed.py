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


ALLOWED: tuple[Allowed, ...] = ()
