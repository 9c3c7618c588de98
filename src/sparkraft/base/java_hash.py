"""Java's `String.hashCode`, and Kafka's mapping of keys to partitions by it.

Coordinators are found by it, and partitions are divided among fetchers.
"""

_SIGN_BIT = 1 << 31


def java_string_hash(text: str) -> int:
    """Java's `String.hashCode`: over UTF-16 code units, wrapped to a signed 32-bit integer."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for at in range(0, len(units), 2):
        value = (31 * value + (units[at] << 8 | units[at + 1])) & 0xFFFFFFFF
    return value - (1 << 32) if value & _SIGN_BIT else value


def positive_hash(key: str) -> int:
    """The absolute hash; 0 for the smallest int32."""
    value = java_string_hash(key)
    return 0 if value == -_SIGN_BIT else abs(value)


def partition_of(key: str, partition_count: int) -> int:
    """Kafka's mapping: the absolute hash modulo the count."""
    return positive_hash(key) % partition_count
