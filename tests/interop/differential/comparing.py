"""Two columns of answers: one conversation per node, and the differences, allowed and not."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tests.interop.differential.allowed import Allowed
from tests.interop.differential.normalise import normalise
from tests.interop.differential.world import Case, World, exchange

Answers = list[tuple[Case, Any, Any]]
"""Cases with Kafka's answer and ours."""


def conversation(
    world: World,
    cases: Sequence[Case],
    normalised: Callable[[World, Any], Any] = normalise,
) -> list[Any]:
    """All answers of one world, in order, with its own names replaced."""
    world.warm_up()
    answers = [normalised(world, exchange(world, case)) for case in cases]
    world.close()
    return answers


def differences(kafka: Any, ours: Any, path: str = "") -> Iterator[str]:
    """Where two answers differ, a line each."""
    if isinstance(kafka, dict) and isinstance(ours, dict):
        for key in sorted(kafka.keys() | ours.keys()):
            yield from differences(
                kafka.get(key, "absent"), ours.get(key, "absent"), f"{path}.{key}"
            )
    elif isinstance(kafka, list) and isinstance(ours, list) and len(kafka) == len(ours):
        for index, pair in enumerate(zip(kafka, ours, strict=True)):
            yield from differences(*pair, f"{path}[{index}]")
    elif kafka != ours:
        yield f"{path or 'answer'}: Kafka {_short(kafka)}, we {_short(ours)}"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}…"


def differing(answers: Answers, allowed: Sequence[Allowed]) -> Iterator[tuple[str, list[int]]]:
    """Each difference, with the entries of `allowed` that it matches."""
    for case, kafka, ours in answers:
        if not case.is_compared:
            continue
        for found in differences(kafka, ours):
            line = f"{case} | {found}"
            yield line, [i for i, one in enumerate(allowed) if one.pattern.search(line)]


def check_equal(answers: Answers, allowed: Sequence[Allowed]) -> None:
    """Fail with each difference that is not allowed, and each allowed one that no longer shows."""
    used: set[int] = set()
    wrong = []
    for line, reasons in differing(answers, allowed):
        used.update(reasons)
        if not reasons:
            wrong.append(line)
    stale = [one.reason for i, one in enumerate(allowed) if i not in used]
    assert not wrong, f"{len(wrong)} differences:\n" + "\n".join(wrong)
    assert not stale, "allowed differences that no longer show:\n" + "\n".join(stale)
