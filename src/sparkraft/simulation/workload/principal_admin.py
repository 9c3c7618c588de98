"""The administrator of a simulated cluster: topics, entries, a quota, and passwords of carol."""

from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import ErrorCode
from sparkraft.protocol.messages import k19_create_topics as k19
from sparkraft.protocol.messages import k30_create_acls as k30
from sparkraft.protocol.messages import k31_delete_acls as k31
from sparkraft.protocol.messages import k49_alter_client_quotas as k49
from sparkraft.protocol.messages import k51_alter_user_scram_credentials as k51
from sparkraft.security.acls import (
    CLUSTER_NAME,
    Acl,
    AclOperation,
    AclPermissionType,
    AclResourceType,
    PatternType,
)
from sparkraft.security.quotas import PRODUCER_BYTE_RATE, USER
from sparkraft.security.scram import SHA_256, salted_password
from sparkraft.security.secret import Secret
from sparkraft.simulation.workload.node_clients import FAILURES, REQUEST_MS
from sparkraft.simulation.workload.principal_client import PrincipalClient, Principals
from sparkraft.simulation.world.principals import ADMIN, LIMITED_USER, PRODUCE_RATE

if TYPE_CHECKING:
    from sparkraft.simulation.workload.client_env import ClientEnv

TOPICS = ("t", "ta", "tab", "b")
NAMES = (*TOPICS, "absent")
"""Topics, one of which does not exist, and groups."""

LOAD_TOPIC = "load"
GROUP_PREFIX = "of-bob-"

ITERATIONS = 4096
"""The fewest that Kafka accepts."""

_USERS = ("User:alice", "User:bob", "User:eve", "User:carol", "User:*", "User:*", "Group:bob")
_OPERATIONS = (
    AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.DELETE,
    AclOperation.CREATE, AclOperation.ALTER, AclOperation.ALTER_CONFIGS,
    AclOperation.DESCRIBE_CONFIGS, AclOperation.ALL, AclOperation.ALL, AclOperation.ALL,
)  # fmt: skip
_CLUSTER_OPERATIONS = (AclOperation.CREATE, AclOperation.ALTER, AclOperation.ALL)
_KINDS = (
    AclResourceType.TOPIC, AclResourceType.TOPIC, AclResourceType.TOPIC,
    AclResourceType.GROUP, AclResourceType.CLUSTER,
)  # fmt: skip
_PATTERNS = (
    *((PatternType.LITERAL, name) for name in (*NAMES, "*")),
    (PatternType.PREFIXED, "t"),
    (PatternType.PREFIXED, "ta"),
)

FIXED = (
    Acl(
        AclResourceType.TOPIC,
        LOAD_TOPIC,
        PatternType.LITERAL,
        f"User:{LIMITED_USER}",
        "*",
        AclOperation.WRITE,
        AclPermissionType.ALLOW,
    ),
    Acl(
        AclResourceType.GROUP,
        GROUP_PREFIX,
        PatternType.PREFIXED,
        "User:bob",
        "*",
        AclOperation.READ,
        AclPermissionType.ALLOW,
    ),
)
"""Entries that stay, so that quotas and groups have clients."""


class Admin(PrincipalClient):
    """See the module docstring."""

    def __init__(
        self, world: "ClientEnv", shared: Principals, *, hosts: tuple[str, ...], limited: bool
    ) -> None:
        """Prepare nothing yet.

        Args:
            world: the cluster.
            shared: see `Principals`.
            hosts: addresses of clients, for entries.
            limited: whether `LIMITED_USER` gets a quota.
        """
        super().__init__(world, "a0", shared, ADMIN)
        self._hosts = hosts
        self._limited = limited
        self._entries: list[Acl] = []
        self._passwords = 0
        self._password: str | None = None
        """The last one of carol's that was acknowledged."""
        self.is_prepared = False
        """Whether the cluster has its topics, the fixed entries, the quota and a password."""

    async def run(self) -> None:
        """Prepare the cluster, then change it until the world drains."""
        for name in (*TOPICS, LOAD_TOPIC):
            await self._until_done(lambda name=name: self._create_topic(name))
        for entry in FIXED:
            await self._until_done(lambda entry=entry: self._add(entry))
        if self._limited:
            await self._until_done(self._set_quota)
        await self._until_done(self._set_password)
        self.is_prepared = True
        while not self.world.draining:
            await self.pause(0.02, 0.25)
            await self._change(self.world.dice.random())

    async def _change(self, roll: float) -> None:
        if roll < 0.08:  # noqa: PLR2004 (seldom)
            await self._set_password()
        elif roll < 0.5 and self._entries:  # noqa: PLR2004 (fewer removals than additions)
            await self._remove(self.world.dice.choice(self._entries))
        elif roll < 0.6 and self._entries:  # noqa: PLR2004 (the same entry again)
            await self._add(self.world.dice.choice(self._entries))
        else:
            entry = self._entry()
            if await self._add(entry):
                self._entries.append(entry)

    async def _until_done(self, step: Any) -> None:
        while not await step():
            await self.pause(0.1, 0.5)

    async def _ask(self, request: Any) -> Any:
        """The response of any broker; None if there is none."""
        try:
            return await self.ask(self.some_host(), request)
        except FAILURES:
            return None

    async def _create_topic(self, name: str) -> bool:
        topic = k19.CreatableTopic(
            name=name, num_partitions=1, replication_factor=self.world.replicas
        )
        answer = await self._ask(k19.CreateTopicsRequest(topics=[topic], timeout_ms=REQUEST_MS))
        done = {ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS}
        return answer is not None and answer.topics[0].error_code in done

    # ---- entries

    def _entry(self) -> Acl:
        dice = self.world.dice
        kind = dice.choice(_KINDS)
        pattern, name = dice.choice(_PATTERNS)
        operations: tuple[AclOperation, ...] = _OPERATIONS
        if kind == AclResourceType.CLUSTER:
            pattern, name, operations = PatternType.LITERAL, CLUSTER_NAME, _CLUSTER_OPERATIONS
        denies = dice.random() < 0.3  # noqa: PLR2004 (fewer denials)
        return Acl(
            int(kind),
            name,
            int(pattern),
            dice.choice(_USERS),
            dice.choice(("*", "*", "*", "*", *self._hosts)),
            int(dice.choice(operations)),
            int(AclPermissionType.DENY if denies else AclPermissionType.ALLOW),
        )

    async def _add(self, entry: Acl) -> bool:
        creation = k30.AclCreation(
            resource_type=entry.resource_type,
            resource_name=entry.resource_name,
            resource_pattern_type=entry.pattern_type,
            principal=entry.principal,
            host=entry.host,
            operation=entry.operation,
            permission_type=entry.permission_type,
        )
        answer = await self._ask(k30.CreateAclsRequest(creations=[creation]))
        done = answer is not None and self.count(answer.results[0], "new entry")
        self._checks.on_change(entry, adds=True, acknowledged=done)
        return done

    async def _remove(self, entry: Acl) -> None:
        exact = k31.DeleteAclsFilter(
            resource_type_filter=entry.resource_type,
            resource_name_filter=entry.resource_name,
            pattern_type_filter=entry.pattern_type,
            principal_filter=entry.principal,
            host_filter=entry.host,
            operation=entry.operation,
            permission_type=entry.permission_type,
        )
        answer = await self._ask(k31.DeleteAclsRequest(filters=[exact]))
        done = False
        if answer is not None:
            result = answer.filter_results[0]
            done = self.count(result, "removed entry")
            done = done and not any(each.error_code for each in result.matching_acls)
        self._checks.on_change(entry, adds=False, acknowledged=done)
        if done:
            self._entries = [each for each in self._entries if each != entry]

    # ---- passwords and quotas

    async def _set_password(self) -> bool:
        self._passwords += 1
        password, salt = f"of-carol-{self._passwords}", self.world.dice.randbytes(16)
        wanted = k51.ScramCredentialUpsertion(
            name="carol",
            mechanism=SHA_256.type,
            iterations=ITERATIONS,
            salt=salt,
            salted_password=salted_password(SHA_256, Secret(password), salt, ITERATIONS),
        )
        self._shared.carol_passwords.append(password)
        answer = await self._ask(k51.AlterUserScramCredentialsRequest(upsertions=[wanted]))
        if answer is None or not self.count(answer.results[0], "new password"):
            return False
        if self._password is not None:
            self._shared.carol_passwords.remove(self._password)
        self._password = password
        return True

    async def _set_quota(self) -> bool:
        entry = k49.AlterClientQuotasRequestEntryData(
            entity=[k49.EntityData(entity_type=USER, entity_name=LIMITED_USER)],
            ops=[k49.OpData(key=PRODUCER_BYTE_RATE, value=float(PRODUCE_RATE))],
        )
        answer = await self._ask(k49.AlterClientQuotasRequest(entries=[entry]))
        return answer is not None and self.count(answer.entries[0], "new quota")
