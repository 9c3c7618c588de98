"""A shard with a log in memory, a manual clock, and clients that remember their responses.

`World` does what the server's runtime does: append, replay, report commits, respond. Records are
encoded and decoded, so that a reload reads what a real log would contain.
"""

import re
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import Millis, Offset
from sparkraft.base.steps import complete
from sparkraft.coordinator.group.config import GroupConfig
from sparkraft.coordinator.group.decision import Peer
from sparkraft.coordinator.group.foreign import ForeignGroup
from sparkraft.coordinator.group.records import decode_record, encode_record
from sparkraft.coordinator.group.shard import GroupShard
from sparkraft.coordinator.runtime import AppendCallback, Decision, Instant
from sparkraft.coordinator.steps import Deciding
from sparkraft.metadata.image import EMPTY_IMAGE
from sparkraft.protocol.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from sparkraft.protocol.messages.k09_offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from sparkraft.protocol.messages.k11_join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from sparkraft.protocol.messages.k12_heartbeat import HeartbeatRequest
from sparkraft.protocol.messages.k13_leave_group import LeaveGroupRequest, MemberIdentity
from sparkraft.protocol.messages.k14_sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)

WALL_START_MS = 1_700_000_000_000


class CountingEntropy:
    """Entropy that counts, so that member ids are readable."""

    def __init__(self) -> None:
        self._count = 0

    def random_bytes(self, count: int) -> bytes:
        self._count += 1
        return self._count.to_bytes(count, "big")

    def below(self, bound: int) -> int:
        return 0 % bound


@dataclass
class Client:
    """What a client knows of itself."""

    name: str
    instance_id: str | None = None
    member_id: str = ""
    generation: int = -1
    protocols: dict[str, bytes] = field(default_factory=lambda: {"range": b""})
    session_ms: int = 10_000
    rebalance_ms: int = 30_000
    version: int = 9
    assignment: bytes | None = None
    protocol: str | None = None
    waits_for: str = ""


class World:
    """See the module docstring."""

    def __init__(self, config: GroupConfig | None = None, group_id: str = "g") -> None:
        self.config = config or GroupConfig()
        self.group_id = group_id
        self.entropy = CountingEntropy()
        self.now_ms = 1_000
        self.log: list[tuple[bytes, bytes | None]] = []
        self.events: list[str] = []
        self.clients: dict[str, Client] = {}
        self.fail_next: ErrorCode | None = None
        self.held: list[AppendCallback] | None = None
        self._reply_to = 0
        self._parked: dict[int, Client] = {}
        self.shard = GroupShard(self.config, self.entropy)
        self.shard.loaded(EMPTY_IMAGE, self.now)

    @property
    def now(self) -> Instant:
        return Instant(Millis(self.now_ms), Millis(WALL_START_MS + self.now_ms))

    def client(self, name: str) -> Client:
        return self.clients.setdefault(name, Client(name))

    # ---- what the driver does

    def do(self, deciding: Deciding[Decision[Any, Any]]) -> Any:
        """Execute a decision; its response, or a KafkaError where the write failed."""
        decision = complete(deciding) if isinstance(deciding, Generator) else deciding
        try:
            if decision.records:
                self._write(decision)
        finally:
            self._send_replies()
        return decision.response

    def _write(self, decision: Decision[Any, Any]) -> None:
        if self.fail_next is not None:
            error, self.fail_next = self.fail_next, None
            self.events.append(f"log: write failed with {error.name}")
            if decision.append_callback is not None:
                self.do(self.shard.on_append_completed(decision.append_callback, error, self.now))
            raise KafkaError(error)
        base = len(self.log)
        for at, record in enumerate(decision.records):
            key, value = encode_record(record)
            self.log.append((key, value))
            self.events.append(f"log: {show_record(key, value)}")
            if decision.replay:
                self.shard.replay(Offset(base + at), record)
        if decision.append_callback is None:
            return
        if self.held is not None:
            self.held.append(decision.append_callback)
        else:
            self.do(self.shard.on_append_completed(decision.append_callback, None, self.now))

    def _send_replies(self) -> None:
        for reply_to, response in self.shard.take_replies():
            client = self._parked.pop(reply_to)
            client.waits_for = ""
            if isinstance(response, JoinGroupResponse):
                self._on_join(client, response)
            else:
                self._on_sync(client, response)

    def _on_join(self, client: Client, response: JoinGroupResponse) -> None:
        error = ErrorCode(response.error_code)
        if error is ErrorCode.MEMBER_ID_REQUIRED:
            client.member_id = response.member_id
        elif error is ErrorCode.NONE:
            client.member_id = response.member_id
            client.generation = response.generation_id
            client.protocol = response.protocol_name
            client.assignment = None
        if error is not ErrorCode.NONE:
            self.events.append(f"{client.name} < join: {error.name} id={response.member_id or '-'}")
            return
        members = ",".join(one.member_id for one in response.members)
        skip = " skip" if response.skip_assignment else ""
        self.events.append(
            f"{client.name} < join: generation={response.generation_id} id={response.member_id} "
            f"leader={response.leader} {response.protocol_name} members=[{members}]{skip}"
        )

    def _on_sync(self, client: Client, response: SyncGroupResponse) -> None:
        error = ErrorCode(response.error_code)
        if error is ErrorCode.NONE:
            client.assignment = bytes(response.assignment)
            self.events.append(f"{client.name} < sync: {client.assignment.decode() or '-'}")
        else:
            self.events.append(f"{client.name} < sync: {error.name}")

    def park(self, client: Client, what: str) -> int:
        self._reply_to += 1
        self._parked[self._reply_to] = client
        client.waits_for = what
        return self._reply_to

    def release(self) -> None:
        """What was written is durable now."""
        held, self.held = self.held or [], None
        for callback in held:
            self.do(self.shard.on_append_completed(callback, None, self.now))

    def pass_time(self, ms: int) -> None:
        """Move the clock, firing each timer at its time."""
        end = self.now_ms + ms
        while (wake_at := self.shard.wake_at) is not None and wake_at <= end:
            self.now_ms = max(self.now_ms, int(wake_at))
            before = len(self.events)
            for decision in self.shard.on_timers(self.now):
                try:
                    self.do(decision)
                except KafkaError as error:
                    self.events.append(f"timer: {error.code.name}")
            if len(self.events) > before:
                self.events.insert(before, f"at {self.now_ms}:")
        self.now_ms = end

    def reload(self) -> None:
        """Another broker takes over: parked requests fail, and it loads the log."""
        self.shard.unload(self.now)
        self._send_replies()
        self.held = None
        self.shard = self.replayed()
        self.shard.loaded(EMPTY_IMAGE, self.now)

    def replayed(self) -> GroupShard:
        """A shard that has read the log and nothing else."""
        shard = GroupShard(self.config, self.entropy)
        for offset, (key, value) in enumerate(self.log):
            record = decode_record(key, value)
            if record is not None:
                shard.replay(Offset(offset), record)
        return shard

    # ---- what clients do

    def peer(self, client: Client) -> Peer:
        return Peer(client_id=client.name, client_host="/10.0.0.1", version=client.version)

    def join(self, client: Client) -> None:
        request = JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=client.session_ms,
            rebalance_timeout_ms=client.rebalance_ms,
            member_id=client.member_id,
            group_instance_id=client.instance_id,
            protocol_type="consumer",
            protocols=[
                JoinGroupRequestProtocol(name=name, metadata=metadata)
                for name, metadata in client.protocols.items()
            ],
        )
        reply_to = self.park(client, "join")
        self._ask(
            lambda: self.shard.handle_join_group(request, self.peer(client), reply_to, self.now),
            client,
            "join",
            reply_to,
        )

    def sync(self, client: Client, assignments: dict[str, bytes]) -> None:
        request = SyncGroupRequest(
            group_id=self.group_id,
            generation_id=client.generation,
            member_id=client.member_id,
            group_instance_id=client.instance_id,
            protocol_type="consumer",
            protocol_name=client.protocol,
            assignments=[
                SyncGroupRequestAssignment(member_id=member_id, assignment=assignment)
                for member_id, assignment in assignments.items()
            ],
        )
        reply_to = self.park(client, "sync")
        self._ask(
            lambda: self.shard.handle_sync_group(request, reply_to, self.now),
            client,
            "sync",
            reply_to,
        )

    def heartbeat(self, client: Client) -> ErrorCode:
        request = HeartbeatRequest(
            group_id=self.group_id,
            generation_id=client.generation,
            member_id=client.member_id,
            group_instance_id=client.instance_id,
        )
        response = self._ask(
            lambda: self.shard.handle_heartbeat(request, self.now), client, "heartbeat"
        )
        if response is None:
            return ErrorCode.UNKNOWN_SERVER_ERROR
        error = ErrorCode(response.error_code)
        self.events.append(f"{client.name} < heartbeat: {error.name}")
        return error

    def leave(self, client: Client, identities: list[tuple[str, str | None]]) -> None:
        request = LeaveGroupRequest(
            group_id=self.group_id,
            members=[
                MemberIdentity(member_id=member_id, group_instance_id=instance_id)
                for member_id, instance_id in identities
            ],
        )
        response = self._ask(
            lambda: self.shard.handle_leave_group(request, self.now), client, "leave"
        )
        if response is not None:
            errors = ",".join(ErrorCode(one.error_code).name for one in response.members)
            self.events.append(f"{client.name} < leave: {errors}")

    def commit(
        self, client: Client, offsets: dict[tuple[str, int], int], *, retention_ms: int = -1
    ) -> ErrorCode:
        """Commit; the error of the whole, or of the first partition."""
        request = OffsetCommitRequest(
            group_id=self.group_id,
            generation_id_or_member_epoch=client.generation,
            member_id=client.member_id,
            group_instance_id=client.instance_id,
            retention_time_ms=retention_ms,
            topics=[
                OffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=partition, committed_offset=offset
                        )
                    ],
                )
                for (topic, partition), offset in offsets.items()
            ],
        )
        try:
            decision = self.shard.handle_offset_commit(request, self.peer(client), self.now)
            response = self.do(decision)
        except KafkaError as error:
            self.events.append(f"{client.name} < commit: {error.code.name}")
            return error.code
        errors = [
            ErrorCode(partition.error_code)
            for topic in response.topics
            for partition in topic.partitions
        ]
        self.events.append(f"{client.name} < commit: {','.join(one.name for one in errors)}")
        return errors[0]

    def fetch(self, places: list[tuple[str, int]] | None) -> dict[tuple[str, int], int]:
        topics = None
        if places is not None:
            topics = [
                OffsetFetchRequestTopics(name=topic, partition_indexes=[partition])
                for topic, partition in places
            ]
        request = OffsetFetchRequestGroup(group_id=self.group_id, topics=topics)
        found = self.shard.fetch_offsets(request, require_stable=False)
        return {
            (topic.name, partition.partition_index): partition.committed_offset
            for topic in found.topics
            for partition in topic.partitions
        }

    def delete_group(self) -> ErrorCode:
        result = self.do(self.shard.handle_delete_group(self.group_id, self.now))
        return ErrorCode(result.error_code)

    def _ask(self, decide: Any, client: Client, what: str, reply_to: int = 0) -> Any:
        try:
            return self.do(decide())
        except KafkaError as error:
            if reply_to and reply_to not in self._parked:
                return None  # Answered by the core.
            self._parked.pop(reply_to, None)
            client.waits_for = ""
            self.events.append(f"{client.name} < {what}: {error.code.name}")
            return None

    # ---- what is there

    def state(self) -> str:
        if self.group_id not in self.shard.group_ids():
            return "absent"
        group = self.shard.group(self.group_id)
        return "foreign" if isinstance(group, ForeignGroup) else group.state.value


def show_record(key: bytes, value: bytes | None) -> str:
    """One line for a record of the log."""
    record = decode_record(key, value)
    assert record is not None
    kind = type(record.key).__name__
    name = {"OffsetCommitKey": "offset", "GroupMetadataKey": "group"}.get(kind, "foreign")
    if name == "offset":
        where = f"offset {record.key.topic}-{record.key.partition}"
        return f"{where} gone" if record.value is None else f"{where}={record.value.offset}"
    if record.value is None:
        return f"{name} gone"
    assert name == "group"
    members = ",".join(
        f"{one.member_id}:{bytes(one.assignment).decode() or '-'}" for one in record.value.members
    )
    return (
        f"group generation={record.value.generation} protocol={record.value.protocol or '-'} "
        f"leader={record.value.leader or '-'} members=[{members}]"
    )


_COUNTED_UUID = re.compile(r"-00000000-0000-4000-8000-([0-9a-f]{12})")


def short_ids(text: str) -> str:
    """Member ids as `client#n`."""
    return _COUNTED_UUID.sub(lambda found: f"#{int(found[1], 16)}", text)
