r"""`ssl.principal.mapping.rules`: the user name of a certificate's distinguished name (KIP-371).

    RULE:^CN=(.*?),OU=Users.*$/$1@users/L, DEFAULT

The first rule whose pattern matches the whole name decides. `DEFAULT` is the name itself; `L` and
`U` change its case. Semantics are those of Kafka's `SslPrincipalMapper`; patterns are those of Java
that Python's `re` reads alike, and others stop the start.
"""

import re
from dataclasses import dataclass

from sparkraft.security.java_patterns import PatternError, compile_java

_RULE = r"RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)"
_SPLITTER = re.compile(rf"\s*({_RULE}.*?|.*?)\s*(?:,\s*|$)")
_PARSER = re.compile(_RULE)
_REFERENCE = re.compile(r"\\(.)|\$(\d+)|\$")


class MappingError(ValueError):
    """The rules are invalid; the message names the rule."""


class NoMatchingRuleError(ValueError):
    """No rule matches a name: its owner may not connect."""


@dataclass(frozen=True, slots=True)
class _Rule:
    pattern: re.Pattern[str] | None
    """None for DEFAULT."""
    replacement: str
    case: str

    def apply(self, name: str) -> str | None:
        """The user name; None if the rule does not match."""
        if self.pattern is None:
            return name
        if not self.pattern.fullmatch(name):
            return None
        mapped = self.pattern.sub(self._expand, name)
        if self.case == "L":
            return mapped.lower()
        return mapped.upper() if self.case == "U" else mapped

    def _expand(self, match: re.Match[str]) -> str:
        """The replacement as Java's `Matcher.appendReplacement` expands it."""
        groups = len(match.groups())

        def one(found: re.Match[str]) -> str:
            if found[1] is not None:
                return found[1]
            if found[2] is None:
                return "$"
            return _referenced(match, found[2], groups)

        return _REFERENCE.sub(one, self.replacement)


def _referenced(match: re.Match[str], digits: str, groups: int) -> str:
    """The longest prefix of `digits` that is a group, then the other digits; else all literally."""
    for end in range(len(digits), 0, -1):
        number = int(digits[:end])
        if number <= groups:
            return (match[number] or "") + digits[end:]
    return f"${digits}"


class PrincipalMapping:
    """The rules of one listener."""

    def __init__(self, rules: str) -> None:
        """Compile `rules`; MappingError if one is invalid."""
        self._rules = tuple(_parse(rules))

    def user_of(self, distinguished_name: str) -> str:
        """The user that a certificate's subject stands for.

        Raises:
            NoMatchingRuleError: no rule matches.
        """
        for rule in self._rules:
            user = rule.apply(distinguished_name)
            if user is not None:
                return user
        raise NoMatchingRuleError(
            f"no rule of ssl.principal.mapping.rules matches {distinguished_name!r}"
        )


def _parse(rules: str) -> list[_Rule]:
    found = []
    for text in (match[1] for match in _SPLITTER.finditer(rules.strip())):
        if text == "DEFAULT":
            found.append(_Rule(None, "", ""))
        elif match := _PARSER.fullmatch(text):
            found.append(_Rule(_compile(match[1]), match[2], match[3]))
        elif text:
            raise MappingError(f"ssl.principal.mapping.rules: invalid rule {text!r}")
    return found


def _compile(pattern: str) -> re.Pattern[str]:
    try:
        return compile_java(pattern)
    except PatternError as error:
        raise MappingError(f"ssl.principal.mapping.rules: {error}") from error
