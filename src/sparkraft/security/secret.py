"""A value that must not appear in logs, errors or tracebacks."""

import hashlib
import hmac


class Secret:
    """A password or key. Its `repr` hides it; only `reveal` returns it.

    Equal values make equal secrets, so that settings with one can be keys of a dict.
    """

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def __repr__(self) -> str:
        """`[hidden]`, as in Kafka's logs."""
        return "[hidden]"

    def __eq__(self, other: object) -> bool:
        """Compare the values, in constant time."""
        return isinstance(other, Secret) and self.matches(other.reveal())

    def __hash__(self) -> int:
        return hash(self._value)

    def reveal(self) -> str:
        """Return the value itself, to be encoded or hashed and not to be kept."""
        return self._value

    def matches(self, given: str) -> bool:
        """Whether `given` is the value, in a time that depends on neither (CVE-2021-38153)."""
        return hmac.compare_digest(_digest(self._value), _digest(given))


def _digest(text: str) -> bytes:
    """Digests have equal lengths, so comparing them does not reveal the length of the value."""
    return hashlib.sha256(text.encode(errors="surrogatepass")).digest()
