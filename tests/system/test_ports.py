"""The ports tests take: one port is never somebody's twice while he hasn't bound it yet."""

import socket
from contextlib import ExitStack

from tests.support.ports import _can_be_bound, _Pool


def test_a_port_that_was_just_given_is_not_given_again() -> None:
    pool = _Pool(range(32_000, 32_600), block=20)
    with ExitStack() as held:
        pool.take(1)
        for port in [*pool._claimed][:-2]:  # but for one, and for the one that was given
            if _can_be_bound(port):
                held.enter_context(socket.socket()).bind(("127.0.0.1", port))
        given = [pool.take(1)[0] for _ in range(6)]
    assert len(set(given)) == 6
    for claim in pool._claims:
        claim.close()


def test_a_retired_port_is_not_given_again() -> None:
    pool = _Pool(range(32_600, 32_900), block=20)
    retired = pool.take(2)
    pool.retire(retired)
    given = [pool.take(1)[0] for _ in range(60)]
    assert not set(retired) & set(given)
    for claim in pool._claims:
        claim.close()
