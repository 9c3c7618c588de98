"""Every planted bug, and every tier it is planted in."""

from typing import NamedTuple

from tests.mutants.core_mutants import CORE_MUTANTS
from tests.mutants.folder_mutants import FOLDER_MUTANTS
from tests.mutants.group_mutants import GROUP_MUTANTS
from tests.mutants.history_mutants import HISTORY_MUTANTS
from tests.mutants.isolated_mutants import ISOLATED_MUTANTS
from tests.mutants.loop_mutants import LOOP_MUTANTS
from tests.mutants.migration_mutants import MIGRATION_MUTANTS
from tests.mutants.move_mutants import MOVE_MUTANTS
from tests.mutants.mutant import Mutant
from tests.mutants.node_mutants import NODE_MUTANTS
from tests.mutants.outsider_mutants import OUTSIDER_MUTANTS
from tests.mutants.principal_mutants import PRINCIPAL_MUTANTS
from tests.mutants.quorum_mutants import QUORUM_MUTANTS
from tests.mutants.record_mutants import RECORD_MUTANTS
from tests.mutants.storage_mutants import STORAGE_MUTANTS
from tests.mutants.transaction_mutants import TRANSACTION_MUTANTS
from tests.mutants.zookeeper_mutants import ZOOKEEPER_MUTANTS

MUTANTS: dict[str, Mutant] = {
    **CORE_MUTANTS,
    **OUTSIDER_MUTANTS,
    **NODE_MUTANTS,
    **RECORD_MUTANTS,
    **MOVE_MUTANTS,
    **MIGRATION_MUTANTS,
    **ZOOKEEPER_MUTANTS,
    **QUORUM_MUTANTS,
    **ISOLATED_MUTANTS,
    **STORAGE_MUTANTS,
    **LOOP_MUTANTS,
    **FOLDER_MUTANTS,
    **TRANSACTION_MUTANTS,
    **GROUP_MUTANTS,
    **PRINCIPAL_MUTANTS,
    **HISTORY_MUTANTS,
}


class MutantCase(NamedTuple):
    """A planted bug in one tier, written `name@tier`."""

    name: str
    tier: str

    @property
    def mutant(self) -> Mutant:
        return MUTANTS[self.name]

    def __str__(self) -> str:
        return f"{self.name}@{self.tier}"


CASES = tuple(MutantCase(name, tier) for name in MUTANTS for tier in MUTANTS[name].tiers)


def cases_named(words: list[str]) -> list[MutantCase]:
    """The cases of `all`, of names and of `name@tier`.

    Raises:
        KeyError: a word names none.
    """
    found: dict[MutantCase, None] = {}
    for word in words:
        named = [c for c in CASES if word in {"all", c.name, str(c)}]
        if not named:
            raise KeyError(word)
        found |= dict.fromkeys(named)
    return list(found)
