"""The simulator's checks of storage: a disk may have kept this or that, and nothing else."""

from pathlib import Path

import pytest

from sparkraft.simulation.checks.node_checks import NodeChecks
from sparkraft.simulation.checks.node_events import LOG
from sparkraft.simulation.workload.clients import Workload
from sparkraft.simulation.world.core_node import SeededEntropy
from sparkraft.simulation.world.nodes import Layout, NodesWorld
from sparkraft.simulation.world.violation import Violation
from sparkraft.storage.names import DELETED, LEADER_EPOCHS


@pytest.mark.parametrize("seed", range(8))
def test_a_checkpoint_may_be_the_one_before_once_the_power_is_lost_and_never_else(
    seed: int,
) -> None:
    world = NodesWorld(seed=seed, observed_by=NodeChecks, layout=Layout.of_records(1, 3))
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


@pytest.mark.parametrize("paused", [False, True])
def test_a_file_on_its_way_out_may_stay_as_long_as_its_log_says(*, paused: bool) -> None:
    world = NodesWorld(seed=1, observed_by=NodeChecks, layout=Layout.of_records(1, 3))
    try:
        world.start_all(Workload(world).clients)
        machine = world.machines[0]

        def written() -> list[str]:
            """The first segments that are on the disk; a folder may still have none."""
            known = machine.node.broker.replica_manager.log_manager.logs()
            segments = [f"{log.directory}/{0:020}.log" for log in known]
            stored = machine.disk.files()
            return [path for path in segments if "/records-" in path and path in stored]

        assert world.run_for(60, lambda: machine.node is not None and bool(written()))
        segment = written()[0]
        logs = machine.node.broker.replica_manager.log_manager.logs()
        log = next(log for log in logs if log.directory == str(Path(segment).parent))
        if paused:  # at a fault point within the removal, which then goes on to its end
            machine.pause()
        machine.disk.rename(segment, segment + DELETED)
        passing = world.checks.storage.watched(machine).passing[segment + DELETED]
        assert passing.delay_ms == log.config.file_delete_delay_ms > 0
    finally:
        world.close()
