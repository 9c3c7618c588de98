r"""`sasl.jaas.config`: the grammar of Kafka's `JaasConfig`, and the login modules we know.

    module flag {name = value} ;        flag: required | requisite | sufficient | optional

* Tokens are those of Java's `StreamTokenizer` as Kafka sets it up: a word is anything without
  white space, `;`, `=`, quotes and `/`; `//`, `/* */` and a lone `/` start comments; a quoted value
  has the escapes \a \b \f \n \r \t \v \ooo and ends with its quote or its line.
* The value has exactly one login module (`JaasContext.load`).
* The name of a module selects a mechanism of ours. No class is ever loaded by it, and any other
  name is an error (CVE-2023-25194).

No error contains a value.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from sparkraft.security.secret import Secret

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
KERBEROS_MODULE = "com.sun.security.auth.module.Krb5LoginModule"
ZOOKEEPER_MODULE = "org.apache.zookeeper.server.auth.DigestLoginModule"
OAUTH_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"

_MODULES: Mapping[str, frozenset[str]] = {
    PLAIN_MODULE: frozenset({"PLAIN"}),
    SCRAM_MODULE: frozenset({"SCRAM-SHA-256", "SCRAM-SHA-512"}),
    OAUTH_MODULE: frozenset({"OAUTHBEARER"}),
    KERBEROS_MODULE: frozenset({"GSSAPI"}),
    ZOOKEEPER_MODULE: frozenset({"DIGEST-MD5"}),
}
"""Login module → the mechanisms it can be used with."""

JAAS_CHARACTERS_MAX = 1 << 20
"""Longer than any list of users in a config, and parsed in milliseconds."""

_FLAGS = frozenset({"required", "requisite", "sufficient", "optional"})

_TOKEN = re.compile(
    r"""(?P<skip>[\0- ]+|/\*(?:.|\n)*?(?:\*/|\Z)|/[^\n\r]*)
    |(?P<quoted>"(?:\\[^\n\r]|[^"\\\n\r])*"?|'(?:\\[^\n\r]|[^'\\\n\r])*'?)
    |(?P<mark>[;=])
    |(?P<word>[^\0- ;="'/\x81-\x9f]+)""",
    re.VERBOSE,
)
_ESCAPE = re.compile(r"\\([0-3][0-7]{0,2}|[4-7][0-7]?|.)")
_CONTROLS = {
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
}


class JaasError(ValueError):
    """A value outside the grammar, or a module we do not know; the text has no secret."""


@dataclass(frozen=True, slots=True)
class LoginModule:
    """The entry of a `sasl.jaas.config`.

    Attributes:
        module: the name of the Java class.
        options: by name; any of them may be a password.
    """

    module: str
    options: Mapping[str, Secret]

    def text(self, name: str) -> str:
        """The value of an option; "" without it."""
        found = self.options.get(name)
        return "" if found is None else found.reveal()

    def check_mechanism(self, mechanism: str) -> None:
        """Raise `JaasError` unless the module serves `mechanism`."""
        if mechanism not in _MODULES[self.module]:
            raise JaasError(f"login module {self.module} is not for SASL mechanism {mechanism}")


def parse_jaas(text: str) -> LoginModule:
    """Parse the value of `sasl.jaas.config`.

    Raises:
        JaasError: it does not have the form above, or has an unknown login module.
    """
    if len(text) > JAAS_CHARACTERS_MAX:
        raise JaasError(f"more than {JAAS_CHARACTERS_MAX} characters")
    tokens = _tokens(text)
    kind, module = next(tokens, ("end", ""))
    if kind not in {"word", "quoted"}:
        raise JaasError("login module not specified")
    kind, flag = next(tokens, ("end", ""))
    if kind == "end":
        raise JaasError("login module control flag not specified")
    if flag.lower() not in _FLAGS:
        raise JaasError("the login module control flag is invalid")
    options = _options(tokens)
    if next(tokens, None) is not None:
        raise JaasError("more than one login module")
    if module not in _MODULES:
        raise JaasError(f"unknown login module; known are {', '.join(sorted(_MODULES))}")
    return LoginModule(module, options)


def _options(tokens: Iterator[tuple[str, str]]) -> dict[str, Secret]:
    """Options up to the semicolon; the last one of a name counts."""
    options: dict[str, Secret] = {}
    for kind, name in tokens:
        if (kind, name) == ("mark", ";"):
            return options
        if kind == "mark" or next(tokens, None) != ("mark", "="):
            raise JaasError("an option is not of the form name=value")
        value_kind, value = next(tokens, ("end", ""))
        if value_kind not in {"word", "quoted"}:
            raise JaasError(f"no value for option {len(options) + 1}")
        options[name] = Secret(value)
    raise JaasError("the entry does not end with a semicolon")


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    """Kind (word, quoted, mark) and value of each token."""
    at = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise JaasError(f"an invalid character at position {at}")
        at = found.end()
        kind, value = str(found.lastgroup), found.group()
        if kind == "quoted":
            yield kind, _unquoted(value)
        elif kind != "skip":
            yield kind, value


def _unquoted(token: str) -> str:
    closed = len(token) > 1 and token[-1] == token[0] and not _ends_escaped(token)
    return _ESCAPE.sub(_unescape, token[1:-1] if closed else token[1:])


def _ends_escaped(token: str) -> bool:
    """Whether a backslash escapes the last character."""
    before = token[1:-1]
    return (len(before) - len(before.rstrip("\\"))) % 2 == 1


def _unescape(escape: "re.Match[str]") -> str:
    value = escape.group(1)
    if value[0] in "01234567":
        return chr(int(value, 8))
    return _CONTROLS.get(value, value)
