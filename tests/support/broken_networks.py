"""A cluster whose network and disks break on command: a fault proxy before each node, no root.

with ProxiedCluster(tmp_path, [Member(1), Member(2), Member(3)]) as cluster:
    cluster.network("deaf 1")
    cluster.network("heal")
"""

import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from tests.support.clusters import Cluster, Member, MemberProcess
from tests.support.failing_disk import FailingDisk
from tests.support.outside_tools import Missing  # noqa: TC001 (read at run time by dataclasses)
from tests.support.ports import lasting_ports


class ProxiedCluster(Cluster):
    """`ports` are those of the proxies, which everybody is told; the nodes listen on others.

    Attributes:
        disks: a disk that can fail for each node, or why there is none.
    """

    def __init__(self, directory: Path, members: Sequence[Member], **options: Any) -> None:
        """As `Cluster`; nothing runs yet."""
        self._inner: dict[int, tuple[int, int]] = {}
        self._taken: set[int] = set()
        self.disks: dict[int, FailingDisk | Missing] = {}
        self._proxy: subprocess.Popen[str] | None = None
        super().__init__(directory, members, **options)

    def _inner_ports(self, node_id: int) -> tuple[int, int]:
        if node_id not in self._inner:
            taken = {port for pair in self.ports.values() for port in pair} | self._taken
            first, second = [p for p in lasting_ports(40) if p not in taken][:2]
            self._taken |= {first, second}
            self._inner[node_id] = (first, second)
        return self._inner[node_id]

    def _properties(self, member: Member) -> dict[str, str]:
        port, controller_port = self._inner_ports(member.id)
        listeners = []
        if member.is_broker:
            listeners.append(f"PLAINTEXT://127.0.0.1:{port}")
        if member.is_controller:
            listeners.append(f"CONTROLLER://127.0.0.1:{controller_port}")
        return {**super()._properties(member), "listeners": ",".join(listeners)}

    def _until_told(self, told: Callable[[int], bool], what: str) -> None:
        """Wait for nobody: who hears of what is up to the faults."""

    def _make(self, member: Member) -> MemberProcess:
        node = super()._make(member)
        node.port, node.controller_port = self._inner_ports(member.id)
        disk = self.disks[member.id] = FailingDisk.in_folder(node.directory)
        if isinstance(disk, FailingDisk):
            node.environment.update(disk.environment)
        return node

    def disk(self, node_id: int) -> FailingDisk:
        """Of that node; the machine must be able to make one fail."""
        found = self.disks[node_id]
        assert isinstance(found, FailingDisk), found.reason
        return found

    def network(self, command: str) -> str:
        """Have the proxy obey a line, as `sparkraft fault-proxy` takes it; what it answers."""
        proxy = self._proxy
        assert proxy is not None
        assert proxy.stdin is not None
        assert proxy.stdout is not None
        proxy.stdin.write(command + "\n")
        proxy.stdin.flush()
        answer = proxy.stdout.readline().strip()
        assert answer.startswith(("ok", "{")), f"{command}: {answer}"
        return answer

    def network_faults_seen(self) -> Mapping[str, int]:
        """How often each fault of the network met anything."""
        seen: dict[str, int] = json.loads(self.network("seen"))
        return seen

    def _routes(self) -> Iterable[str]:
        for member in self.members.values():
            places = [member.is_broker, member.is_controller]
            for at, is_there in enumerate(places):
                if is_there:
                    outer, inner = self.ports[member.id][at], self._inner_ports(member.id)[at]
                    yield f"--route={member.id}=127.0.0.1:{outer}:{inner}"

    def __enter__(self) -> Self:
        """Proxy first, then the nodes."""
        self._proxy = subprocess.Popen(
            [sys.executable, "-m", "sparkraft.cli.main", "fault-proxy", *self._routes()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._proxy.stdout is not None
        assert self._proxy.stdout.readline().strip() == "ready"
        return super().__enter__()

    def __exit__(self, *_: object) -> None:
        """End all of them."""
        super().__exit__()
        if self._proxy is not None:
            self._proxy.communicate(timeout=20)
            self._proxy = None
