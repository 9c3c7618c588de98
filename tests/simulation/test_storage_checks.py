"""The simulator's checks of storage: a disk may have kept this or that, and nothing else."""

import pytest

from sparkraft.simulation.core_node import SeededEntropy
from sparkraft.simulation.invariants import Violation
from sparkraft.simulation.node_events import LOG
from sparkraft.simulation.nodes import Layout, NodesWorld
from sparkraft.storage.names import LEADER_EPOCHS


@pytest.mark.parametrize("seed", range(8))
def test_a_checkpoint_may_be_the_one_before_once_the_power_is_lost_and_never_else(
    seed: int,
) -> None:
    world = NodesWorld(seed=seed, layout=Layout.of_records(1, 3))
    try:
        disk, checks = world.machines[0].disk, world.checks.storage
        path = f"{LOG}/{LEADER_EPOCHS}"
        disk.mkdir(LOG)
        for epochs in (b"0\n1\n1 0\n", b"0\n1\n2 0\n"):
            disk.fsync_dir(LOG)
            disk.write(f"{path}.tmp", epochs)
            disk.fsync(f"{path}.tmp")
            disk.rename(f"{path}.tmp", path)
        machine = world.machines[0]
        checks.on_end(machine, "kill")  # which leaves the page cache, and the rename in it
        checks.on_start(machine)
        checks.on_end(machine, "power")
        disk.lose_power(SeededEntropy(world.dice))
        checks.on_start(machine)
        checks.on_end(machine, "kill")
        disk._load({path: b"0\n1\n3 0\n"}, {LOG})
        with pytest.raises(Violation, match="S4"):
            checks.on_start(machine)
    finally:
        world.close()
