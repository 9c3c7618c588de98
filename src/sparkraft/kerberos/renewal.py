"""Tickets are renewed before they expire, in a thread of the process: Kafka's `KerberosLogin`.

    │ a ticket is seen                     renewed │       │ it expires
    ├───── window factor + jitter · random ────────┤       │

A key gets a new ticket; a ticket cache is renewed by `kinit -R`, for as long as the KDC permits. A
cache that another program has filled counts from when this process sees it, not from its start. An
attempt that fails is repeated once after ten seconds, as in Kafka, and again later: Kafka's thread
ends if a ticket lives shorter than `sasl.kerberos.min.time.before.relogin`, or after two failures.

Without it a process whose connections all stay open finds an expired ticket at its next login.
"""

from __future__ import annotations

import logging
import random
import subprocess
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from sparkraft.kerberos.contexts import KerberosError

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger(__name__)

KINIT = "sasl.kerberos.kinit.cmd"
WINDOW_FACTOR = "sasl.kerberos.ticket.renew.window.factor"
JITTER = "sasl.kerberos.ticket.renew.jitter"
RELOGIN_MS_MIN = "sasl.kerberos.min.time.before.relogin"
RENEWAL_KEYS = (KINIT, WINDOW_FACTOR, JITTER, RELOGIN_MS_MIN)
"""Configs of clients and of nodes."""

ATTEMPTS = 2
RETRY_S = 10.0
_RANDOM = random.SystemRandom()

PAUSE_S_MIN = 1.0
"""Tickets that live for seconds do not make a busy loop."""

_LONG_MAX = 2.0**63
"""Kafka's times in configs are less."""

KINIT_S_MAX = 60.0
"""Time limit of a KDC that does not respond."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RenewalPolicy:
    """When tickets are renewed, with Kafka's defaults.

    Attributes:
        window_factor: the part of a lifetime after which a ticket is renewed.
        jitter: the largest addition to it; each time a random one.
        relogin_ms_min: the shortest time between two renewals, unless the ticket lives shorter.
        kinit: the path of the program.
    """

    window_factor: float = 0.80
    jitter: float = 0.05
    relogin_ms_min: int = 60_000
    kinit: str = "/usr/bin/kinit"

    def pause_s(self, lifetime_s: float, share: float) -> float:
        """How long to wait with a ticket that expires in `lifetime_s`; 0 <= `share` < 1."""
        planned = lifetime_s * min(self.window_factor + self.jitter * share, 1.0)
        least = self.relogin_ms_min / 1000
        if least <= lifetime_s:
            planned = max(planned, least)
        return max(planned, PAUSE_S_MIN)


def renewal_policy(get: Callable[[str], str | None]) -> RenewalPolicy:
    """The policy in a client's configs.

    Raises:
        KerberosError: a value is not a number, or outside of its range.
    """
    default = RenewalPolicy()
    return RenewalPolicy(
        window_factor=_number(get, WINDOW_FACTOR, default.window_factor, 1.0),
        jitter=_number(get, JITTER, default.jitter, 1.0),
        relogin_ms_min=int(_number(get, RELOGIN_MS_MIN, default.relogin_ms_min, _LONG_MAX)),
        kinit=get(KINIT) or default.kinit,
    )


def _number(get: Callable[[str], str | None], key: str, default: float, most: float) -> float:
    text = get(key)
    if text is None:
        return default
    try:
        value = float(text)
    except ValueError:
        raise KerberosError(f"{key} is a number, not {text!r}") from None
    if not 0 <= value <= most:
        raise KerberosError(f"{key}={text} is out of range")
    return value


class Tickets(Protocol):
    """The tickets of one client."""

    def lifetime_s(self) -> float:
        """How long the present one lives; gets one if there is none.

        Raises:
            KerberosError: it cannot.
        """
        ...

    def renew(self, policy: RenewalPolicy) -> None:
        """Get another one.

        Raises:
            KerberosError: it cannot.
        """
        ...


class Renewal:
    """The renewal of one client's tickets."""

    def __init__(
        self,
        tickets: Tickets,
        policy: RenewalPolicy,
        *,
        sleep: Callable[[float], object] = time.sleep,
        share: Callable[[], float] = _RANDOM.random,
    ) -> None:
        self._tickets = tickets
        self._policy = policy
        self._sleep = sleep
        self._share = share

    def run(self) -> None:
        """Renew for as long as the process runs, also after an unexpected failure."""
        while True:
            try:
                self.step()
            except Exception:
                log.exception("The Kerberos ticket was not renewed")
                self._sleep(RETRY_S)

    def step(self) -> bool:
        """Wait until a ticket has to be renewed, and renew it; return whether that worked."""
        try:
            lifetime_s = self._tickets.lifetime_s()
        except KerberosError as error:
            log.warning("No Kerberos ticket: %s", error)
            self._sleep(max(self._policy.relogin_ms_min / 1000, PAUSE_S_MIN))
            return False
        self._sleep(self._policy.pause_s(lifetime_s, self._share()))
        for attempt in range(ATTEMPTS):
            if attempt:
                self._sleep(RETRY_S)
            try:
                self._tickets.renew(self._policy)
            except KerberosError as error:
                log.warning("The Kerberos ticket was not renewed: %s", error)
            else:
                log.info("The Kerberos ticket was renewed")
                return True
        return False


_LOCK = threading.Lock()
_RUNNING: set[tuple[Tickets, RenewalPolicy]] = set()
"""The tickets that this process renews: few, since each is a login module of its configuration."""


def keep_renewed(tickets: Tickets, policy: RenewalPolicy) -> None:
    """Renew equal tickets by one thread, which ends with the process."""
    with _LOCK:
        if (tickets, policy) in _RUNNING:
            return
        _RUNNING.add((tickets, policy))
    threading.Thread(
        target=Renewal(tickets, policy).run, name="kerberos renewal", daemon=True
    ).start()


def run_kinit(policy: RenewalPolicy, cache: str | None) -> None:
    """Renew the ticket of a cache; None: the system's.

    Raises:
        KerberosError: the program is missing, failed or did not end.
    """
    command = [policy.kinit, "-R"]
    if cache is not None:
        command += ["-c", cache]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            errors="replace", timeout=KINIT_S_MAX, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise KerberosError(f"{policy.kinit} -R: {error}") from None
    if done.returncode:
        raise KerberosError(f"{policy.kinit} -R: {done.stderr.strip()}")
