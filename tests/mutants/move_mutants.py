"""Planted bugs in reassignments and the return of preferred leaders: play `replicas-move`."""

from typing import Any

from sparkraft.client.explain import partition as explain_partition
from sparkraft.client.explain.events import Json, isr_change_json
from sparkraft.controller import partition_rules
from sparkraft.controller.controller import Controller
from sparkraft.controller.decision import Decision
from tests.mutants.mutant import NODES, Mutant, Patches, registrar

MOVE_MUTANTS: dict[str, Mutant] = {}

_plant = registrar(MOVE_MUTANTS, tiers=NODES, workload="produce-consume", scenario="replicas-move")


@_plant("a reassignment never ends, even if all replicas caught up", "C10")
def _a_reassignment_never_ends() -> Patches:
    return [(partition_rules, "_complete_reassignment", lambda state: state)]


@_plant("the periodic check brings no preferred leader back", "C10")
def _preferred_leaders_stay_away() -> Patches:
    def none(_self: Controller) -> Any:
        yield from ()
        return Decision(records=(), response=False, atomic=False)

    return [(Controller, "balance_leaders", none)]


@_plant("a replica removed by a reassignment stays in the ISR", "C1")
def _removed_replicas_stay_in_sync() -> Patches:
    original = partition_rules._complete_reassignment

    def complete(state: Any) -> Any:
        return original(state)._replace(isr=state.isr)

    return [(partition_rules, "_complete_reassignment", complete)]


@_plant("the removal of a replica from the ISR by a reassignment is not explained", "E1")
def _removed_replicas_are_not_explained() -> Patches:
    def without(*arguments: Any) -> Json | None:
        found = isr_change_json(*arguments)
        return None if found is None else found | {"unassigned": []}

    return [(explain_partition, "isr_change_json", without)]
