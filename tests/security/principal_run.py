"""A run of principals on the cores of security, by seed, without sockets or real time.

Three nodes replay the access control entries of one log, each with a delay of its own, sometimes by
a snapshot. Clients log in by PLAIN and SCRAM, among them one that repeats recorded logins and one
that re-authenticates as somebody else; then they act on topics, groups and the cluster, and produce
as much as their quotas let through. Three invariants are checked by other code than that under
test:

    A1   no action without the right: each decision is that of a scan of the records that the node
         has replayed, for the principal whose password the client knows
    A2   an acknowledged change of entries holds once a node has replayed it: no decision is that of
         an earlier state
    A3   a principal gets no more than its quota, however many connections and client ids it has
"""

import random
from dataclasses import dataclass, field
from typing import Any

from sparkraft.base.ids import Uuid
from sparkraft.metadata.apply import apply
from sparkraft.metadata.image import EMPTY_IMAGE, ClusterImage, ScramCredential
from sparkraft.protocol.messages.metadata_records import (
    AccessControlEntryRecord,
    RemoveAccessControlEntryRecord,
)
from sparkraft.security.acls import AclOperation, AclPermissionType, AclResourceType, PatternType
from sparkraft.security.authenticator import Authenticator, State
from sparkraft.security.client_quotas import ClientQuotas
from sparkraft.security.plain import PlainServer
from sparkraft.security.principal import USER, KafkaPrincipal
from sparkraft.security.protocols import SecurityProtocol
from sparkraft.security.quotas import PRODUCER_BYTE_RATE, REQUEST_PERCENTAGE, quota_entity
from sparkraft.security.scram import SHA_256, ScramClient, ScramServer, keys_of, salted_password
from sparkraft.security.secret import Secret
from sparkraft.security.session import Session
from sparkraft.security.standard_authorizer import StandardAuthorizer
from sparkraft.server.access_control import AclPublisher
from sparkraft.server.raft.metadata_log_listener import CommittedBatch
from sparkraft.simulation.checks.acl_rules import is_allowed
from sparkraft.simulation.world.principals import Action

NODES, STEPS = 3, 260
PROPAGATION_MS = 500
PASSWORDS = {"admin": "of-admin", "alice": "of-alice", "bob": "of-bob", "eve": "of-eve"}
SUPER_USER = "User:admin"
SALT = b"0123456789abcdef"
CREDENTIALS = {
    user: ScramCredential(SALT, keys.stored_key, keys.server_key, 4096)
    for user, keys in (
        (user, keys_of(SHA_256, salted_password(SHA_256, Secret(password), SALT, 4096)))
        for user, password in PASSWORDS.items()
    )
}

OPERATIONS = [
    AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.DELETE,
    AclOperation.ALTER, AclOperation.ALTER_CONFIGS, AclOperation.DESCRIBE_CONFIGS, AclOperation.ALL,
]  # fmt: skip
KINDS = [AclResourceType.TOPIC, AclResourceType.GROUP]
NAMES = ["t", "ta", "tab", "b"]
PATTERNS = [(PatternType.LITERAL, name) for name in [*NAMES, "*"]]
PATTERNS += [(PatternType.PREFIXED, name) for name in ("t", "ta")]
HOSTS = ["10.0.0.1", "10.0.0.2"]

RATE, PERCENT, CONNECTIONS = 10_000, 10.0, 4
BURST_S, WINDOW_MS = 10, 1_000
"""How long an idle client may send at once, and the time of a window."""

LONG_S = 1.5
"""Of the quota, in one request: more than a window."""


class ViolationError(AssertionError):
    """An invariant does not hold."""


def uuid(number: int) -> Uuid:
    return Uuid((1000 + number).to_bytes(16, "big"))


@dataclass
class Node:
    """One node's entries: the records that it has replayed, and the product's authorizer."""

    delay_ms: int
    default: bool
    image: ClusterImage = EMPTY_IMAGE
    replayed: int = 0
    due: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.authorizer = StandardAuthorizer([SUPER_USER], allow_everyone_if_no_acl=self.default)
        self.publisher = AclPublisher(self.authorizer, lambda: self.image)
        self.authorizer.complete_load()

    def replay(self, records: list[Any], *, by_snapshot: bool) -> None:
        """Replay the log up to its end."""
        for record in records[self.replayed :]:
            self.image = apply(self.image, record)
            if not by_snapshot:
                self.publisher.on_commit(CommittedBatch(0, 0, 0, 0, 0, [record]))  # type: ignore[arg-type]
        if by_snapshot:
            self.publisher.on_snapshot(None)  # type: ignore[arg-type]
        self.replayed = len(records)


@dataclass
class Client:
    """A session, and the user whose password its owner knows; None: of no user."""

    session: Session
    knows: str | None
    node: Node
    client_id: str


class NoLimits:
    def lifetime_ms(self, mechanism: str, credential_expires_at_ms: int | None) -> int | None:
        return None


class PrincipalRun:
    """One run; `check` raises the first `ViolationError`."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.now = 1_000
        self.records: list[Any] = []
        self.acknowledged: list[tuple[int, int]] = []
        """Time, and how many records there were then."""
        self.ids: list[Uuid] = []
        default = self.dice.random() < 0.3
        self.nodes = [Node(self.dice.randint(1, PROPAGATION_MS), default) for _ in range(NODES)]
        self.clients: list[Client] = []
        self.recorded: list[tuple[bytes, bytes]] = []
        """Messages of SCRAM logins that eve has seen on the wire."""
        self.quotas = ClientQuotas()
        self.quotas.update(
            {
                quota_entity([(USER.lower(), "alice")]): {PRODUCER_BYTE_RATE: float(RATE)},
                quota_entity([(USER.lower(), "bob"), ("client-id", None)]): {
                    REQUEST_PERCENTAGE: PERCENT
                },
            }
        )
        self.muted_until: dict[int, int] = {}
        self.got: dict[str, float] = {}
        self.begun: dict[str, int] = {}
        self.not_waited_for = 0.0
        """What bob took in requests whose throttle was cut to a window."""

    def check(self) -> None:
        actions = [self.change_entries] * 3 + [self.act] * 6 + [self.log_in] * 2
        actions += [self.produce] * 2 + [self.ask] * 2
        for _ in range(STEPS):
            self.now += self.dice.choice([1, 5, 20, 100, 400])
            self.propagate()
            self.dice.choice(actions)()

    # ---- entries

    def propagate(self) -> None:
        for node in self.nodes:
            if self.records and node.replayed < len(self.records):
                first_due = self.acknowledged_after(node.replayed)
                if self.now >= first_due + node.delay_ms:
                    node.replay(self.records, by_snapshot=self.dice.random() < 0.15)

    def acknowledged_after(self, count: int) -> int:
        """When the first record that a node lacks was acknowledged."""
        return next(at for at, length in self.acknowledged if length > count)

    def change_entries(self) -> None:
        live = self.live_records(len(self.records))
        if live and self.dice.random() < 0.45:
            self.records.append(RemoveAccessControlEntryRecord(id=self.dice.choice(sorted(live))))
        else:
            same = self.dice.random() < 0.25 and live
            fields = _fields(live[self.dice.choice(sorted(live))]) if same else self.entry()
            self.ids.append(uuid(len(self.ids)))
            self.records.append(AccessControlEntryRecord(id=self.ids[-1], **fields))
        self.acknowledged.append((self.now, len(self.records)))

    def entry(self) -> dict[str, Any]:
        dice = self.dice
        pattern, name = dice.choice(PATTERNS)
        deny = dice.random() < 0.3
        return {
            "resource_type": int(dice.choice(KINDS)),
            "resource_name": name,
            "pattern_type": int(pattern),
            "principal": dice.choice(["User:alice", "User:bob", "User:eve", "User:*", "Group:bob"]),
            "host": dice.choice(["*", "*", *HOSTS]),
            "operation": int(dice.choice(OPERATIONS)),
            "permission_type": int(AclPermissionType.DENY if deny else AclPermissionType.ALLOW),
        }

    def live_records(self, count: int) -> dict[Uuid, Any]:
        """The entries after so many records, without the product's image."""
        live: dict[Uuid, Any] = {}
        for record in self.records[:count]:
            if isinstance(record, AccessControlEntryRecord):
                live[record.id] = record
            else:
                live.pop(record.id, None)
        return live

    # ---- logins

    def log_in(self) -> None:
        way = self.dice.choice([self.by_plain, self.by_scram, self.by_replay, self.as_another])
        user, knows = way()
        if user:
            if user != knows:
                raise ViolationError(f"A1: a client that knows the password of {knows} is {user}")
            self.connect(user, knows)

    def connect(self, user: str, knows: str, kind: str = USER) -> None:
        node = self.dice.choice(self.nodes)
        session = Session(
            KafkaPrincipal(kind, user),
            listener_name="SASL",
            security_protocol=SecurityProtocol.SASL_PLAINTEXT,
            client_host=self.dice.choice(HOSTS),
            authorizer=node.authorizer,
        )
        self.clients.append(Client(session, knows, node, f"id-{len(self.clients)}"))
        if self.dice.random() < 0.1:  # a certificate may name a principal of another type
            session.principal = KafkaPrincipal("Group", user)

    def authenticator(self, mechanism: str, before: Authenticator | None = None) -> Authenticator:
        made = Authenticator(self.mechanisms(), NoLimits(), before)
        made.on_handshake(1, mechanism)
        return made

    def mechanisms(self) -> dict[str, Any]:
        nonce = f"{self.dice.getrandbits(64):x}"
        return {
            "PLAIN": lambda: PlainServer({u: Secret(p) for u, p in PASSWORDS.items()}),
            "SCRAM-SHA-256": lambda: ScramServer(
                SHA_256, CREDENTIALS.get, nonce=nonce, unknown_user_key=b"key"
            ),
        }

    def credentials(self) -> tuple[str, str, str]:
        """A user, a password, and whose it is."""
        user = self.dice.choice([*sorted(PASSWORDS), "nobody"])
        knows = user if user in PASSWORDS and self.dice.random() < 0.7 else "eve"
        return user, PASSWORDS[knows], knows

    def by_plain(self) -> tuple[str, str]:
        user, password, knows = self.credentials()
        authenticator = self.authenticator("PLAIN")
        acts_for = self.dice.choice(["", "", "admin"])
        authenticator.on_token(f"{acts_for}\0{user}\0{password}".encode())
        return authenticator.user, knows

    def by_scram(self) -> tuple[str, str]:
        user, password, knows = self.credentials()
        authenticator = self.authenticator("SCRAM-SHA-256")
        nonce = f"{self.dice.getrandbits(64):x}"
        client = ScramClient(SHA_256, user, Secret(password), nonce=nonce)
        first = client.first()
        if self.dice.random() < 0.2:
            first = first.replace(b"n,,", b"n,a=admin,")
        challenge = authenticator.on_token(first).response
        if challenge.error_code or authenticator.state is State.FAILED:
            return authenticator.user, knows
        final = client.respond(bytes(challenge.auth_bytes))
        assert final is not None
        authenticator.on_token(final)
        if authenticator.user:
            self.recorded.append((first, final))
        return authenticator.user, knows

    def by_replay(self) -> tuple[str, str]:
        """Eve sends what she has seen of another login."""
        if not self.recorded:
            return "", "eve"
        first, final = self.dice.choice(self.recorded)
        authenticator = self.authenticator("SCRAM-SHA-256")
        challenge = authenticator.on_token(first).response
        if not challenge.error_code and authenticator.state is not State.FAILED:
            authenticator.on_token(final)
        return authenticator.user, "eve"

    def as_another(self) -> tuple[str, str]:
        """A connection of eve's re-authenticates; what it was is what it must stay."""
        first = self.authenticator("PLAIN")
        first.on_token(f"\0eve\0{PASSWORDS['eve']}".encode())
        again = self.authenticator("PLAIN", first)
        again.on_token(f"\0bob\0{PASSWORDS['bob']}".encode())
        return again.user, "eve"

    # ---- actions

    def act(self) -> None:
        """Some clients do the same."""
        operation = self.dice.choice(OPERATIONS[:-1])
        kind, name = self.dice.choice(KINDS), self.dice.choice([*NAMES, "tabc"])
        for client in self.dice.sample(self.clients, min(4, len(self.clients))):
            self.act_as(client, operation, kind, name)

    def act_as(
        self, client: Client, operation: AclOperation, kind: AclResourceType, name: str
    ) -> None:
        allowed = client.session.authorizer.authorize(client.session, operation, kind, name)
        count = client.node.replayed
        if allowed == self.should(client, operation, kind, name, count):
            return
        is_stale = any(
            allowed == self.should(client, operation, kind, name, earlier)
            for earlier in range(count)
        )
        verb = "may" if allowed else "may not"
        raise ViolationError(
            f"{'A2' if is_stale else 'A1'}: {client.session.principal} at "
            f"{client.session.client_host} {verb} {operation.name} {kind.name} {name}"
        )

    def should(
        self, client: Client, operation: AclOperation, kind: AclResourceType, name: str, count: int
    ) -> bool:
        """Kafka's rules, on the records."""
        principal, host = str(client.session.principal), client.session.client_host
        if principal == SUPER_USER:
            return True
        action = Action(principal, host, operation, kind, name)
        entries = self.live_records(count).values()
        return is_allowed(entries, action, default=client.node.default)

    # ---- quotas

    def produce(self) -> None:
        """A greedy client sends all that it may, on all of its connections."""
        for connection in range(CONNECTIONS):
            for _ in range(3):
                amount = RATE * self.dice.choice([0.1, 1.0, 3.0])
                if not self.consume("alice", f"id-{connection}", connection, amount):
                    break

    def ask(self) -> None:
        """The same, of requests that take time."""
        for _ in range(60):
            seconds = self.dice.choice([0.02, 0.1, 0.1, LONG_S])
            if not self.consume("bob", "one", CONNECTIONS, PERCENT * seconds):
                break

    def consume(self, user: str, client_id: str, slot: int, amount: float) -> bool:
        """Send a request, unless its connection is held up."""
        if self.now < self.muted_until.get(slot, 0):
            return False
        self.begun.setdefault(user, self.now)
        if user == "alice":
            wait = self.quotas.record(PRODUCER_BYTE_RATE, user, client_id, int(amount), self.now)
            self.account(user, amount, RATE, CONNECTIONS * 3 * RATE)
        else:
            wait = self.quotas.record_time(user, client_id, amount / 100, self.now)
            if wait > WINDOW_MS:
                raise ViolationError(f"A3: {user} waits {wait} ms, more than a window")
            if wait == WINDOW_MS:
                self.not_waited_for += amount
            self.account(user, amount, PERCENT, LONG_S * PERCENT + self.not_waited_for)
        self.muted_until[slot] = self.now + wait
        return True

    def account(self, user: str, amount: float, limit: float, more: float) -> None:
        """All that came through is what an idle client may send at once, and the quota since.

        `more` is what may exceed it: a request of each connection, and all requests whose throttle
        would be longer than a window.
        """
        self.got[user] = self.got.get(user, 0.0) + amount
        seconds = (self.now - self.begun[user]) / 1000
        most = limit * (seconds + BURST_S) + more
        if self.got[user] > most:
            raise ViolationError(f"A3: {user} got {self.got[user]:,.0f} of {most:,.0f}")


def _fields(record: Any) -> dict[str, Any]:
    return {
        name: getattr(record, name)
        for name in (
            "resource_type", "resource_name", "pattern_type", "principal", "host", "operation",
            "permission_type",
        )
    }  # fmt: skip
