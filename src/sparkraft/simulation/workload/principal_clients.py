"""Clients of several users in a simulated cluster with access control.

    a0          the administrator (`principal_admin`)
    u0 to u3    alice, bob, eve and carol: ask for everything that entries allow or deny
    i0          logs in with wrong passwords, and as users that do not exist
    q0 to q3    alice, if she has a quota: write as much as it lets through, on new connections
    w0          bob: repeats one Produce request
    m0          bob: members of groups that find topics by a regular expression

They use only the network, and report what nodes answer to a `PrincipalObserver`.
"""

from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import ErrorCode
from sparkraft.base.ids import Uuid
from sparkraft.protocol.messages import k68_consumer_group_heartbeat as k68
from sparkraft.security.acls import AclOperation, AclResourceType
from sparkraft.simulation.workload.node_clients import FAILURES
from sparkraft.simulation.workload.principal_admin import (
    GROUP_PREFIX,
    LOAD_TOPIC,
    NAMES,
    TOPICS,
    Admin,
)
from sparkraft.simulation.workload.principal_client import PrincipalClient, Principals
from sparkraft.simulation.workload.questions import QUESTIONS, UNDECIDED, produce
from sparkraft.simulation.workload.transaction_clients import OF_GROUPS
from sparkraft.simulation.world.network import ip_of
from sparkraft.simulation.world.principals import (
    ADMIN,
    LIMITED_USER,
    PASSWORDS,
    PRODUCE_BYTES_MAX,
    Action,
    Attempt,
)

if TYPE_CHECKING:
    from sparkraft.simulation.workload.client_env import ClientEnv
    from sparkraft.simulation.world.observers import PrincipalObserver

USERS = ("alice", "bob", "eve", "carol")
QUOTA_CLIENTS = 4
REGEXES = ("t.*", "ta.*|b", ".*")
BEATS_MAX = 12
"""Heartbeats of a member; then the next one joins another group."""

REBALANCE_MS = 3_000
RECORD_BYTES = 600


class User(PrincipalClient):
    """Asks `QUESTIONS` about `NAMES`.

    Attributes:
        is_done: whether each was answered since the world drains.
    """

    is_done = False

    async def run(self) -> None:
        """Ask at random until the world drains, then everything."""
        while not self.world.draining:
            await self.pause(0.01, 0.1)
            await self._ask_some()
        for question in QUESTIONS.values():
            for name in NAMES:
                while await self.question(question, self.some_host(), name) is None:
                    await self.pause(0.1, 0.5)
        self.is_done = True

    async def _ask_some(self) -> None:
        dice = self.world.dice
        question = QUESTIONS[dice.choice(sorted(QUESTIONS))]
        await self.question(question, self.some_host(), dice.choice(NAMES))
        if dice.random() < 0.03:  # noqa: PLR2004 (seldom: another login)
            for connection in self._connections.values():
                connection.abort("the user goes")


class Writer(PrincipalClient):
    """Repeats one Produce request at the leader, which nodes serve on their fast path."""

    async def run(self) -> None:
        """Write until the world drains, whether it may or not."""
        host = self.some_host()
        while not self.world.draining:
            await self.pause(0.02, 0.1)
            code = await self.question(QUESTIONS["produce"], host, TOPICS[0])
            if code is None or code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                host = self.some_host()


class Intruder(PrincipalClient):
    """Tries users and passwords; some of them are right."""

    async def run(self) -> None:
        """Log in until the world drains."""
        while not self.world.draining:
            await self.pause(0.05, 0.5)
            try:
                made = await self.log_in(self.some_host(), self._guess())
            except FAILURES:
                continue
            made.abort("logged in")

    def _guess(self) -> Attempt:
        dice = self.world.dice
        known = [*PASSWORDS.values(), "of-carol-1", *self._shared.carol_passwords]
        user = dice.choice([*sorted(PASSWORDS), "carol", "nobody", "*"])
        mechanism = dice.choice(["PLAIN", "SCRAM-SHA-256"])
        return Attempt(user, dice.choice(known), mechanism)


class Greedy(PrincipalClient):
    """Writes to one topic as fast as it can; at times on a new connection."""

    def __init__(self, world: "ClientEnv", name: str, shared: Principals) -> None:
        super().__init__(world, name, shared, LIMITED_USER)
        self.topic = LOAD_TOPIC

    async def run(self) -> None:
        """Write until the world drains."""
        while not self.world.draining:
            try:
                await self._write()
            except FAILURES:
                self.forget(0)
                await self.pause(0.05, 0.3)

    async def _write(self) -> None:
        leader = await self.leader(0)
        if leader is None:
            await self.pause(0.05, 0.3)
            return
        if self.world.dice.random() < 0.1:  # noqa: PLR2004 (the throttle is of the user)
            (await self.connected(leader)).abort("replaced")
        await self.connected(leader)
        since = self._checks.begin(leader, forwarded=False)
        request = produce(LOAD_TOPIC, RECORD_BYTES)
        records = request.topic_data[0].partition_data[0].records
        assert isinstance(records, bytes | bytearray)
        size = len(records)
        assert size < PRODUCE_BYTES_MAX
        answer = await self.ask(leader, request, version=9)
        code = answer.responses[0].partition_responses[0].error_code
        self._checks.on_throttle(self.user, answer.throttle_time_ms)
        if code == ErrorCode.NONE:
            self.world.counts["bytes accepted"] += size
            self._checks.on_produced(self.user, leader, since, size=size)
        else:
            self.forget(0)
            await self.pause(0.05, 0.3)


class Members(PrincipalClient):
    """One member of one group after another."""

    async def run(self) -> None:
        """Join groups until the world drains."""
        count = 0
        while not self.world.draining:
            count += 1
            group_id = f"{GROUP_PREFIX}{count}"
            self._checks.on_group(group_id, self.principal, self.ip)
            await self._be_member(group_id)

    async def _be_member(self, group_id: str) -> None:
        regex = self.world.dice.choice(REGEXES)
        member_id, epoch = str(Uuid(self.world.dice.randbytes(16))), 0
        topics: list[Any] = []
        for _ in range(BEATS_MAX):
            await self.pause(0.1, 0.4)
            request = k68.ConsumerGroupHeartbeatRequest(
                group_id=group_id,
                member_id=member_id,
                member_epoch=epoch,
                rebalance_timeout_ms=REBALANCE_MS if epoch == 0 else -1,
                subscribed_topic_regex=regex if epoch == 0 else None,
                topic_partitions=topics,
            )
            answer = await self._beat(group_id, request)
            if answer is None:
                continue
            epoch = answer.member_epoch
            if answer.assignment is not None:
                topics = [
                    k68.TopicPartitions(topic_id=each.topic_id, partitions=list(each.partitions))
                    for each in answer.assignment.topic_partitions
                ]

    async def _beat(self, group_id: str, request: Any) -> Any:
        """Send a heartbeat, and report the decision; None without a successful response."""
        try:
            host = await self.coordinator(OF_GROUPS, group_id)
            if host is None:
                return None
            await self.connected(host)
            since = self._checks.begin(host, forwarded=False)
            answer = await self.ask(host, request, version=1)
        except FAILURES:
            self.forget_coordinator(OF_GROUPS, group_id)
            return None
        code = answer.error_code
        if code not in UNDECIDED:
            right = Action(
                self.principal, self.ip, AclOperation.READ, AclResourceType.GROUP, group_id
            )
            allowed = code != ErrorCode.GROUP_AUTHORIZATION_FAILED
            self._checks.on_decision([right], host, since, allowed=allowed, forwarded=False)
        if code in {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE}:
            self.forget_coordinator(OF_GROUPS, group_id)
        return answer if self.count(answer, "heartbeat") else None


class PrincipalWorkload:
    """The clients of one run."""

    def __init__(self, world: "ClientEnv", checks: "PrincipalObserver", *, limited: bool) -> None:
        """Create the clients; `limited`: alice has a quota."""
        shared = Principals(checks)
        hosts = tuple(ip_of(f"client{place}") for place in range(1, 1 + len(USERS)))
        self.users = [User(world, f"u{i}", shared, user) for i, user in enumerate(USERS)]
        others: list[PrincipalClient] = [
            Intruder(world, "i0", shared, ADMIN),
            Members(world, "m0", shared, "bob"),
            Writer(world, "w0", shared, "bob"),
            *(Greedy(world, f"q{i}", shared) for i in range(QUOTA_CLIENTS if limited else 0)),
        ]
        self._admin = Admin(world, shared, hosts=hosts, limited=limited)
        self._clients = [self._admin, *self.users, *others]

    @property
    def clients(self) -> list[Callable[[Any], Coroutine[Any, Any, None]]]:
        """The functions that run the clients; `NodesWorld.start_all` calls each with the world."""
        return [partial(_run, client) for client in self._clients]

    @property
    def is_prepared(self) -> bool:
        """Whether the administrator has prepared the cluster."""
        return self._admin.is_prepared

    @property
    def is_done(self) -> bool:
        """Whether each user has asked everything since the world drains."""
        return all(user.is_done for user in self.users)


async def _run(client: PrincipalClient, _world: Any) -> None:
    await client.run()
