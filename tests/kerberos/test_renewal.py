"""The times at which tickets are renewed, and failures; `test_gssapi_clients` has a real KDC."""

import sys

import pytest

from sparkraft.kerberos.contexts import KerberosError
from sparkraft.kerberos.renewal import (
    ATTEMPTS,
    RETRY_S,
    Renewal,
    RenewalPolicy,
    renewal_policy,
    run_kinit,
)


class FakeTickets:
    """Tickets that live for `lifetimes`, one after the other; the first renewals fail."""

    def __init__(self, *lifetimes: float | None, failures: int = 0) -> None:
        self._lifetimes = iter(lifetimes)
        self._failures = failures
        self.renewed = 0

    def lifetime_s(self) -> float:
        lifetime = next(self._lifetimes)
        if lifetime is None:
            raise KerberosError("no ticket")
        return lifetime

    def renew(self, policy: RenewalPolicy) -> None:
        del policy
        if self._failures:
            self._failures -= 1
            raise KerberosError("the KDC does not respond")
        self.renewed += 1


def renewal(tickets: FakeTickets, slept: list[float], share: float = 0.0) -> Renewal:
    return Renewal(tickets, RenewalPolicy(), sleep=slept.append, share=lambda: share)


def test_a_ticket_is_renewed_after_four_fifths_of_its_time():
    slept: list[float] = []
    tickets = FakeTickets(36_000, 36_000)
    assert renewal(tickets, slept).step()
    assert renewal(tickets, slept, share=0.5).step()
    assert slept == [28_800, pytest.approx(36_000 * 0.825)]
    assert tickets.renewed == 2


@pytest.mark.parametrize(
    ("lifetime_s", "pause_s"),
    [
        (70, 60),  # the shortest time between renewals
        (50, 40),  # it lives shorter than that; Kafka's thread would end
        (0.5, 1),
    ],
)
def test_short_tickets_are_renewed_before_they_expire(lifetime_s, pause_s):
    assert RenewalPolicy().pause_s(lifetime_s, 0) == pause_s


def test_an_attempt_is_repeated_once_and_then_with_the_next_ticket(caplog):
    slept: list[float] = []
    tickets = FakeTickets(1_000, 1_000, None, 1_000, failures=ATTEMPTS + 1)
    made = renewal(tickets, slept)
    assert [made.step() for _ in range(4)] == [False, True, False, True]
    assert slept == [800, RETRY_S, 800, RETRY_S, 60, 800]
    assert "the KDC does not respond" in caplog.text
    assert "No Kerberos ticket: no ticket" in caplog.text


def test_the_policy_is_that_of_kafkas_configs():
    assert renewal_policy({}.get) == RenewalPolicy()
    given = {
        "sasl.kerberos.kinit.cmd": "/opt/kinit",
        "sasl.kerberos.ticket.renew.window.factor": "0.5",
        "sasl.kerberos.ticket.renew.jitter": "0",
        "sasl.kerberos.min.time.before.relogin": "1000",
    }
    wanted = RenewalPolicy(window_factor=0.5, jitter=0.0, relogin_ms_min=1_000, kinit="/opt/kinit")
    assert renewal_policy(given.get) == wanted


@pytest.mark.parametrize("text", ["soon", "-1", "2", "nan"])
def test_a_factor_that_is_not_a_part_is_refused(text):
    with pytest.raises(KerberosError, match=r"sasl\.kerberos\.ticket\.renew\.window\.factor"):
        renewal_policy({"sasl.kerberos.ticket.renew.window.factor": text}.get)


@pytest.mark.parametrize("text", ["inf", "1e300"])
def test_a_time_without_an_end_is_refused(text):
    with pytest.raises(KerberosError, match=r"sasl\.kerberos\.min\.time\.before\.relogin"):
        renewal_policy({"sasl.kerberos.min.time.before.relogin": text}.get)


class Broken(FakeTickets):
    """Renewals that fail as nobody expected, and end the test at the third."""

    def renew(self, policy: RenewalPolicy) -> None:
        self.renewed += 1
        if self.renewed == 3:
            raise KeyboardInterrupt
        raise UnicodeDecodeError("utf-8", b"", 0, 1, "a message of the program")


def test_a_failure_that_nobody_expected_does_not_end_the_renewal(caplog):
    slept: list[float] = []
    tickets = Broken(1_000, 1_000, 1_000)
    with pytest.raises(KeyboardInterrupt):
        renewal(tickets, slept).run()
    assert slept == [800, RETRY_S, 800, RETRY_S, 800]
    assert caplog.text.count("The Kerberos ticket was not renewed") == 2


def test_a_message_of_the_program_that_is_not_utf_8_is_reported(tmp_path):
    program = tmp_path / "kinit"
    program.write_bytes(b"#!/bin/sh\nprintf 'not r\\351newed' >&2\nexit 1\n")
    program.chmod(0o755)
    with pytest.raises(KerberosError, match="not r\ufffdnewed"):
        run_kinit(RenewalPolicy(kinit=str(program)), None)


def test_a_program_that_fails_or_is_missing_is_named(tmp_path):
    with pytest.raises(KerberosError, match="no-such-program"):
        run_kinit(RenewalPolicy(kinit=str(tmp_path / "no-such-program")), None)
    with pytest.raises(KerberosError, match="-R"):
        run_kinit(RenewalPolicy(kinit=sys.executable), "FILE:/none")
