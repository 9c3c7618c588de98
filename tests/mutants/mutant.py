"""What a planted bug is, and how a module of them registers its own.

A mutant replaces functions of the product, or of a simulated driver, for the length of one run:
`planted` patches them and restores them afterwards. Its name is the name of its function.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol
from unittest.mock import patch

Patches = list[tuple[Any, str, Any]]
"""(owner, attribute, replacement)"""

CORES, NODES = ("cores",), ("nodes",)
BOTH = ("cores", "nodes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """A planted bug.

    Attributes:
        about: the bug in one sentence.
        seen_by: the invariants that may report it.
        patches: builds the replacements.
        tiers: where it is planted: bare raft cores, whole nodes or both.
        scenario: what it is planted in; on whole nodes chaos if they do not have that scenario.
        isolated: only `seen_by` is checked, so that no other invariant reports first (whole nodes).
        liveness: a minority stays broken at the end of the run.
    """

    about: str
    seen_by: tuple[str, ...]
    patches: Callable[[], Patches]
    tiers: tuple[str, ...]
    scenario: str = "chaos"
    workload: str = "create-topics"
    isolated: bool = False
    liveness: bool = False

    def is_isolated(self, tier: str) -> bool:
        """A bug of the core that is planted in whole nodes as well is isolated there."""
        return tier == "nodes" and (self.isolated or self.tiers == BOTH)


def registrar(
    mutants: dict[str, Mutant],
    tiers: tuple[str, ...],
    **defaults: Any,
) -> Callable[..., Callable[..., Any]]:
    """Return a decorator that adds planted bugs to `mutants`; `defaults` are fields of `Mutant`."""

    def mutant(about: str, *seen_by: str, **fields: Any) -> Callable[..., Any]:
        def register(patches: Callable[[], Patches]) -> Callable[[], Patches]:
            name = patches.__name__.strip("_").replace("_", "-")
            assert name not in mutants, name
            known: dict[str, Any] = {"tiers": tiers, **defaults, **fields}
            mutants[name] = Mutant(about=about, seen_by=seen_by, patches=patches, **known)
            return patches

        return register

    return mutant


class Patched(Protocol):
    """A planted bug of any kind."""

    @property
    def patches(self) -> Callable[[], Patches]: ...


@contextmanager
def planted(mutant: Patched) -> Iterator[None]:
    with ExitStack() as stack:
        for owner, attribute, replacement in mutant.patches():
            stack.enter_context(patch.object(owner, attribute, replacement))
        yield
