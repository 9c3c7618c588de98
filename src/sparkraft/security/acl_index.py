"""Access control entries by resource, so that a decision reads only those that fit its resource.

    literal   (type, LITERAL, name)           → entries of that name, or of `*`
    prefixed  (type, PREFIXED, name[:length]) → for each length that some prefix of the type has

A decision costs two lookups and one for each distinct length of a prefix, whatever the number of
entries. `AclIndex` follows the image: entries are added and removed one by one.

Invariant: the index has the entries of the image's `acls`, each as often as it has ids.
"""

from collections import Counter
from collections.abc import Iterable, Iterator

from sparkraft.security.acls import WILDCARD, Acl, AclOperation, AclPermissionType, PatternType

_Key = tuple[int, int, str]


class AclIndex:
    """See the module docstring."""

    def __init__(self, acls: Iterable[Acl] = ()) -> None:
        self._entries: dict[_Key, Counter[Acl]] = {}
        self._lengths: dict[int, Counter[int]] = {}
        """Resource type → how many prefixes have each length."""
        for acl in acls:
            self.add(acl)

    def add(self, acl: Acl) -> None:
        """Add an entry; equal ones are counted."""
        key = _key(acl)
        entries = self._entries.get(key)
        if entries is None:
            entries = self._entries[key] = Counter()
            if acl.pattern_type == PatternType.PREFIXED:
                lengths = self._lengths.setdefault(acl.resource_type, Counter())
                lengths[len(acl.resource_name)] += 1
        entries[acl] += 1

    def remove(self, acl: Acl) -> None:
        """Remove one entry equal to `acl`, which must have been added."""
        key = _key(acl)
        entries = self._entries[key]
        entries[acl] -= 1
        if not entries[acl]:
            del entries[acl]
        if entries:
            return
        del self._entries[key]
        if acl.pattern_type == PatternType.PREFIXED:
            lengths = self._lengths[acl.resource_type]
            lengths[len(acl.resource_name)] -= 1
            if not lengths[len(acl.resource_name)]:
                del lengths[len(acl.resource_name)]

    def fitting(self, resource_type: int, name: str) -> Iterator[Acl]:
        """The entries whose pattern includes the resource: literal, prefixes, wildcard."""
        entries = self._entries
        yield from entries.get((resource_type, PatternType.LITERAL, name), ())
        for length in self._lengths.get(resource_type, ()):
            if length <= len(name):
                yield from entries.get((resource_type, PatternType.PREFIXED, name[:length]), ())
        if name != WILDCARD:
            yield from entries.get((resource_type, PatternType.LITERAL, WILDCARD), ())

    def of_type(self, resource_type: int) -> Iterator[Acl]:
        """All entries of a resource type."""
        for key, entries in self._entries.items():
            if key[0] == resource_type:
                yield from entries

    def allows_any(
        self, resource_type: int, operation: AclOperation, principals: Iterable[str], host: str
    ) -> bool:
        """Whether some resource of the type could be allowed (KIP-679).

        As Kafka's Authorizer.authorizeByResourceType after its check of a fixed name: no operation
        implies another; DENY on `*` wins, then ALLOW on `*`; another pattern counts unless the same
        literal, or a prefix of it, is denied.
        """
        who = frozenset(principals)
        allowed: list[Acl] = []
        denied: set[tuple[int, str]] = set()
        for acl in self.of_type(resource_type):
            if acl.principal not in who or acl.host not in (WILDCARD, host):
                continue
            if acl.operation not in (operation, AclOperation.ALL):
                continue
            if acl.permission_type == AclPermissionType.DENY:
                denied.add((acl.pattern_type, acl.resource_name))
            elif acl.permission_type == AclPermissionType.ALLOW:
                allowed.append(acl)
        every = (PatternType.LITERAL, WILDCARD)
        if every in denied:
            return False
        return any(
            (acl.pattern_type, acl.resource_name) == every or not _is_dominated(acl, denied)
            for acl in allowed
        )


def _is_dominated(acl: Acl, denied: set[tuple[int, str]]) -> bool:
    name = acl.resource_name
    if acl.pattern_type == PatternType.LITERAL and (PatternType.LITERAL, name) in denied:
        return True
    return any((PatternType.PREFIXED, name[:end]) in denied for end in range(1, len(name) + 1))


def _key(acl: Acl) -> _Key:
    return acl.resource_type, acl.pattern_type, acl.resource_name
