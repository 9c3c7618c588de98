"""A client of a simulated cluster that logs in as a user, and reports the decisions of nodes."""

from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.client.connection import Connection
from sparkraft.security.login import Login
from sparkraft.security.sasl import SaslClient, SaslError
from sparkraft.security.scram import SHA_256, ScramClient
from sparkraft.security.secret import Secret
from sparkraft.simulation.workload.node_clients import FAILURES, REQUEST_MS
from sparkraft.simulation.workload.questions import UNDECIDED, Question
from sparkraft.simulation.workload.transaction_clients import CoordinatedClient
from sparkraft.simulation.world.loop import CURRENT
from sparkraft.simulation.world.network import ip_of
from sparkraft.simulation.world.principals import PASSWORDS, Attempt

if TYPE_CHECKING:
    from sparkraft.simulation.workload.client_env import ClientEnv
    from sparkraft.simulation.world.observers import PrincipalObserver
    from sparkraft.simulation.world.principals import Moment


class UnverifiedScram(ScramClient):
    """A client that accepts any server, as an attacker's would: the server alone decides."""

    def respond(self, token: bytes) -> bytes | None:
        """See `ScramClient`."""
        try:
            return super().respond(token)
        except SaslError:
            return None


class SeededLogin:
    """Credentials whose nonces are those of the simulation."""

    blocks = False

    def __init__(self, attempt: Attempt, world: "ClientEnv") -> None:
        self.mechanism = attempt.mechanism
        self._login = Login(attempt.mechanism, attempt.user, Secret(attempt.password))
        self._dice = world.dice

    def client(self, nonce: str, host: str) -> SaslClient:
        """See `Credentials`; another nonce than `nonce`."""
        del nonce
        if self.mechanism == SHA_256.name:
            login, mine = self._login, f"{self._dice.getrandbits(96):x}"
            return UnverifiedScram(SHA_256, login.user, login.password, nonce=mine)
        return self._login.client("", host)


class Principals:
    """State that the clients of a run share.

    Attributes:
        checks: gets their reports.
        carol_passwords: the last one that was acknowledged, and those that were not and may be set
            later.
    """

    def __init__(self, checks: "PrincipalObserver") -> None:
        self.checks = checks
        self.carol_passwords: list[str] = []


class PrincipalClient(CoordinatedClient):
    """The connections of one user."""

    def __init__(self, world: "ClientEnv", name: str, shared: Principals, user: str) -> None:
        super().__init__(world, name)
        self.user = user
        self._shared = shared
        self._checks = shared.checks

    @property
    def principal(self) -> str:
        """As entries name it."""
        return f"User:{self.user}"

    @property
    def ip(self) -> str:
        """Its address."""
        current = CURRENT.get()
        assert current is not None
        return ip_of(current.name)

    def attempt(self) -> Attempt | None:
        """Its next login; None: it cannot log in yet."""
        if self.user in PASSWORDS:
            return Attempt(self.user, PASSWORDS[self.user], "PLAIN")
        passwords = self._shared.carol_passwords
        if not passwords:
            return None
        return Attempt(self.user, self.world.dice.choice(passwords), "SCRAM-SHA-256")

    async def connect(self, host: str) -> Connection:
        """See `Client.connect`."""
        attempt = self.attempt()
        if attempt is None:
            raise KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, "no password yet")
        made = await self.log_in(host, attempt)
        self._checks.on_connected(self.user, host)
        return made

    async def log_in(self, host: str, attempt: Attempt) -> Connection:
        """Open a connection, and report whether the login is accepted."""
        since = self._checks.begin(host, forwarded=False)
        try:
            made = await Connection.open(
                *self.world.address(host),
                client_id=self.name,
                timeout_ms=REQUEST_MS,
                login=SeededLogin(attempt, self.world),
            )
        except KafkaError as error:
            if error.code is ErrorCode.SASL_AUTHENTICATION_FAILED:
                self._checks.on_login(attempt, host, since, accepted=False)
            raise
        self._checks.on_login(attempt, host, since, accepted=True)
        return made

    async def question(self, question: Question, host: str, name: str) -> int | None:
        """Ask, and report the decision; return the error code, None without a decision."""
        try:
            await self.connected(host)
            since = self._checks.begin(host, forwarded=question.forwarded)
            answer = await self.ask(host, question.request(name), question.version)
        except FAILURES:
            return None
        code = _code(question, answer)
        if code in UNDECIDED:
            return None
        self._checks.on_throttle(self.user, answer.throttle_time_ms)
        self.decided(question, host, name, since, allowed=code != question.denied)
        return code

    def decided(
        self, question: Question, host: str, name: str, since: "Moment", *, allowed: bool
    ) -> None:
        """Report a decision."""
        self._checks.on_decision(
            question.actions(self.principal, self.ip, name),
            host,
            since,
            allowed=allowed,
            forwarded=question.forwarded,
        )

    def count(self, answer: Any, what: str) -> bool:
        """Count an error code, and return whether it is 0."""
        if answer.error_code:
            self.world.counts[f"{what}: {ErrorCode(answer.error_code).name}"] += 1
        return not answer.error_code


def _code(question: Question, answer: Any) -> int:
    """The error code of a response; of one that refuses all of a request, the one at its top."""
    try:
        return question.code(answer)
    except IndexError:
        return int(getattr(answer, "error_code", ErrorCode.UNKNOWN_SERVER_ERROR))
