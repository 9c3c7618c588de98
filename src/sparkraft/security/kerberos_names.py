r"""`sasl.kerberos.principal.to.local.rules`: the user name of a Kerberos principal.

    RULE:[2:$1@$0](.*@EXAMPLE\.ORG)s/@.*//g/L, DEFAULT          primary[/instance]@REALM → user

* `RULE:[n:format](match)s/from/to/g/L` applies to principals of `n` components: `format` names the
  realm as `$0` and the components from `$1` on, the result must match `match` as a whole, and the
  first match of `from` (with `g` each one) becomes `to`; `L` and `U` change the case. All but
  `[n:format]` is optional.
* `DEFAULT` applies to principals of the default realm: the user is the first component.
* The first rule that applies decides. A result that still has `/` or `@` is an error.

Semantics are those of Kafka's `KerberosShortNamer`, `KerberosRule` and `KerberosName`. Patterns are
those of Java that Python reads alike (`java_patterns`). A rule whose references cannot exist stops
the start; in Kafka the logins fail whose names it would change.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from sparkraft.security.java_patterns import PatternError, compile_java

RULES = "sasl.kerberos.principal.to.local.rules"

_RULE = re.compile(
    r"(?P<default>DEFAULT)|RULE:\[(?P<components>[0-9]*):(?P<format>[^\]]*)\]"
    r"(?:\((?P<match>[^)]*)\))?(?:s/(?P<source>[^/]*)/(?P<target>[^/]*)/(?P<all>g)?)?/?(?P<case>[LU])?"
)
_PARAMETER = re.compile(r"\$([0-9]*)")
_TARGET = re.compile(r"\\(.)|\$([0-9])([0-9]*)|[^\\$]", re.DOTALL)
_NAME = re.compile(r"([^/@]*)(?:/([^/@]*))?@([^/@]*)")


class RuleError(ValueError):
    """A rule is invalid; the message quotes it."""


class PrincipalError(ValueError):
    """A principal has no user name: no rule applies, or the result is not simple."""


@dataclass(frozen=True, slots=True)
class KerberosName:
    """The parts of a principal.

    Attributes:
        components: one or two, the primary first.
        realm: None if the principal has none.
    """

    components: tuple[str, ...]
    realm: str | None


def parse_principal(principal: str) -> KerberosName:
    """Split a principal.

    Raises:
        PrincipalError: it has more than two components, or escaped characters: an escaped separator
            would be taken for a real one.
    """
    if "\\" in principal:
        raise PrincipalError(f"the Kerberos principal {principal!r} has escaped characters")
    found = _NAME.fullmatch(principal)
    if found is not None:
        primary, instance, realm = found.groups()
        return KerberosName((primary,) if instance is None else (primary, instance), realm)
    if "@" in principal:
        raise PrincipalError(f"malformed Kerberos principal {principal!r}")
    return KerberosName((principal,), None)


@dataclass(frozen=True, slots=True)
class _Default:
    realm: str

    def apply(self, parts: Sequence[str]) -> str | None:
        return parts[1] if parts[0] == self.realm else None


@dataclass(frozen=True, slots=True)
class _Rule:
    text: str
    components: int
    format: str
    match: re.Pattern[str] | None
    source: re.Pattern[str] | None
    target: str
    replaces_all: bool
    case: str | None

    def apply(self, parts: Sequence[str]) -> str | None:
        """The user name; None if the rule does not apply; `parts` begins with the realm."""
        if len(parts) - 1 != self.components:
            return None
        base = _PARAMETER.sub(lambda found: parts[int(found[1])], self.format)
        if self.match is not None and not self.match.fullmatch(base):
            return None
        if self.source is not None:
            base = self.source.sub(self._expand, base, count=0 if self.replaces_all else 1)
        if "/" in base or "@" in base:
            raise PrincipalError(f"{base!r} after the rule {self.text} is not a simple name")
        if self.case == "L":
            return base.lower()
        return base.upper() if self.case == "U" else base

    def _expand(self, match: re.Match[str]) -> str:
        """The target as Java's `Matcher.appendReplacement` expands it."""
        groups = len(match.groups())

        def one(found: re.Match[str]) -> str:
            if found[1] is not None:
                return found[1]
            if found[2] is None:
                return found[0]
            number, digits = _group(found[2], found[3], groups)
            return (match[number] or "") + digits

        return _TARGET.sub(one, self.target)


def _group(first: str, more: str, groups: int) -> tuple[int, str]:
    """The group of a reference, and the digits after it that are text: Java takes the most."""
    number = int(first)
    for at, digit in enumerate(more):
        longer = number * 10 + int(digit)
        if longer > groups:
            return number, more[at:]
        number = longer
    return number, ""


class ShortNames:
    """The rules of a listener, for one default realm."""

    def __init__(self, rules: Sequence[str], default_realm: str) -> None:
        """Compile them; `RuleError` if one is invalid."""
        self._rules = tuple(_parse(rule, default_realm) for rule in rules)

    def user_of(self, principal: str) -> str:
        """The user name of a principal.

        Raises:
            PrincipalError: it has none.
        """
        name = parse_principal(principal)
        if name.realm is None:
            return name.components[0]
        parts = (name.realm, *name.components)
        for rule in self._rules:
            user = rule.apply(parts)
            if user is not None:
                return user
        raise PrincipalError(f"no rule of {RULES} applies to the Kerberos principal {principal!r}")


def _parse(rule: str, default_realm: str) -> _Default | _Rule:
    found = _RULE.fullmatch(rule)
    if found is None:
        raise RuleError(f"{RULES}: invalid rule {rule!r}")
    if found["default"]:
        return _Default(default_realm)
    if not found["components"]:
        raise RuleError(f"{RULES}: rule {rule!r} has no number of components")
    components = int(found["components"])
    for digits in _PARAMETER.findall(found["format"]):
        if not digits or int(digits) > components:
            raise RuleError(f"{RULES}: rule {rule!r} has no component ${digits}")
    try:
        match = None if found["match"] is None else compile_java(found["match"])
        source = None if found["source"] is None else compile_java(found["source"])
    except PatternError as error:
        raise RuleError(f"{RULES}: {error}") from error
    target = found["target"] or ""
    _check_target(rule, target, 0 if source is None else source.groups)
    return _Rule(
        rule, components, found["format"], match, source, target, bool(found["all"]), found["case"]
    )


def _check_target(rule: str, target: str, groups: int) -> None:
    """Refuse a reference to a group that the pattern lacks, and `$` and a backslash at the end."""
    at = 0
    while at < len(target):
        found = _TARGET.match(target, at)
        if found is None or (found[2] is not None and int(found[2]) > groups):
            raise RuleError(f"{RULES}: rule {rule!r} has an invalid replacement {target!r}")
        at = found.end()
