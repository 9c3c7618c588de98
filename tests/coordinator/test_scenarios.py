"""Rebalances as text: commands, then the events of the group and its responses.

Rewrite the expected parts with `REWRITE_SCENARIOS=1 pytest tests/coordinator/test_scenarios.py`,
then review the diff.

Commands (one group, `g`; a client is named by a capital letter):
    config KEY=NUMBER …            before anything else
    client A KEY=VALUE …           instance, protocols (a,b), session, rebalance, version, id
    join A | sync A [A=x B=y] | heartbeat A | leave A … | leave instance=i
    commit A t-0=5 … | commit outside t-0=5 | fetch [t-0 …]
    pass MS                        moves the clock; timers fire at their times
    fail CODE                      the next append fails
    hold | release                 appends are not committed until released
    reload                         another broker reads the log
    delete | topic-gone T | describe | journal
"""

from pathlib import Path

import pytest

from sparkraft.base.errors import ErrorCode
from sparkraft.base.steps import complete
from sparkraft.coordinator.group.config import GroupConfig
from tests.coordinator.world import Client, World, short_ids
from tests.support.scenario_player import check_scenario

SCENARIOS = sorted((Path(__file__).parent / "scenarios").glob("*.txt"))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_scenario_plays_as_written(path: Path) -> None:
    check_scenario(path, Player)


class Player:
    def __init__(self) -> None:
        self.world = World(GroupConfig(initial_rebalance_delay_ms=0))
        self.before = "absent"

    def take(self) -> list[str]:
        events = [short_ids(event) for event in self.world.events]
        self.world.events.clear()
        state = self.world.state()
        if state != self.before:
            events.append(f"g: {self.before} -> {state}")
            self.before = state
        return events or ["ok"]

    def run(self, line: str) -> None:
        command, *words = line.split()
        getattr(self, command.replace("-", "_"))(*words)

    def config(self, *words: str) -> None:
        values = {"initial_rebalance_delay_ms": 0, **{k: int(v) for k, v in _pairs(words)}}
        self.world = World(GroupConfig(**values))

    def client(self, name: str, *words: str) -> None:
        client = self.world.client(name)
        for key, value in _pairs(words):
            if key == "protocols":
                client.protocols = {one: _metadata(one) for one in value.split(",")}
            elif key in ("session", "rebalance"):
                setattr(client, f"{key}_ms", int(value))
            elif key in ("version", "generation"):
                setattr(client, key, int(value))
            elif key == "id":
                client.member_id = "" if value == "-" else value
            else:
                client.instance_id = value

    def join(self, *names: str) -> None:
        for name in names:
            self.world.join(self.world.client(name))

    def sync(self, name: str, *words: str) -> None:
        given = {
            self.world.client(other).member_id: value.encode() for other, value in _pairs(words)
        }
        self.world.sync(self.world.client(name), given)

    def heartbeat(self, *names: str) -> None:
        for name in names:
            self.world.heartbeat(self.world.client(name))

    def leave(self, *words: str) -> None:
        identities: list[tuple[str, str | None]] = []
        for word in words:
            if "=" in word:
                identities.append(("", word.partition("=")[2]))
            else:
                client = self.world.client(word)
                identities.append((client.member_id, client.instance_id))
        self.world.leave(
            Client("tool") if "=" in words[0] else self.world.client(words[0]), identities
        )

    def commit(self, name: str, *words: str) -> None:
        client = Client("outside") if name == "outside" else self.world.client(name)
        offsets = {_place(place): int(offset) for place, offset in _pairs(words)}
        self.world.commit(client, offsets)

    def fetch(self, *words: str) -> None:
        found = self.world.fetch([_place(word) for word in words] if words else None)
        shown = " ".join(f"{topic}-{index}={offset}" for (topic, index), offset in found.items())
        self.world.events.append(f"offsets: {shown or 'none'}")

    def _pass(self, ms: str) -> None:
        self.world.pass_time(int(ms))

    def fail(self, code: str) -> None:
        self.world.fail_next = ErrorCode[code]

    def hold(self) -> None:
        self.world.held = []

    def release(self) -> None:
        self.world.release()

    def reload(self) -> None:
        self.world.reload()

    def delete(self) -> None:
        self.world.events.append(f"delete: {self.world.delete_group().name}")

    def topic_gone(self, topic: str) -> None:
        self.world.do(self.world.shard.handle_topics_deleted([topic]))

    def describe(self) -> None:
        group = complete(self.world.shard.describe_group("g", 6))
        members = ",".join(
            f"{one.member_id}:{bytes(one.member_assignment).decode() or '-'}"
            for one in group.members
        )
        error = ErrorCode(group.error_code)
        self.world.events.append(
            f"{group.group_state} {group.protocol_type or '-'} {group.protocol_data or '-'} "
            f"[{members}]{'' if error is ErrorCode.NONE else ' ' + error.name}"
        )

    def journal(self) -> None:
        for one in self.world.shard.journal.entries("g"):
            if one.kind not in {"leader", "assignor"}:
                continue
            out = "".join(f"; not {who}: {why}" for who, why in one.ruled_out.items())
            self.world.events.append(
                f"{one.kind} {one.chosen or 'nobody'} (generation {one.generation}): "
                f"{one.reason}{out}"
            )


setattr(Player, "pass", Player._pass)


def _pairs(words: tuple[str, ...]) -> list[tuple[str, str]]:
    return [(word.partition("=")[0], word.partition("=")[2]) for word in words]


def _place(word: str) -> tuple[str, int]:
    topic, _, index = word.rpartition("-")
    return topic, int(index)


def _metadata(topic: str) -> bytes:
    return b""
