"""An editor changes topics, configs, leaders and replicas in the console."""

import asyncio
import http.client
import json
import os
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
from playwright.async_api import expect

from sparkraft.base.errors import KafkaError
from sparkraft.cli import main as cli
from sparkraft.client.cluster import Cluster as Client
from sparkraft.client.leadership import LeadershipAdmin
from sparkraft.client.producer import Producer
from sparkraft.client.values import EARLIEST, NewTopic, ResourceType
from sparkraft.console.changes import parse_change
from sparkraft.console.replica_changes import _spread
from tests.cluster.conftest import STEADY
from tests.support.clusters import Cluster, Member
from tests.support.console import WAIT_MS, Browser, ConsoleProcess
from tests.support.ports import wait_until

pytestmark = pytest.mark.real_clients

expect.set_options(timeout=WAIT_MS)

T = TypeVar("T")
Json = dict[str, Any]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(
        tmp_path_factory.mktemp("changes"), [Member(1), Member(2), Member(3)], overrides=STEADY
    ) as made:
        yield made


@pytest.fixture(scope="module")
def console(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleProcess]:
    with ConsoleProcess(cluster.bootstrap, tmp_path_factory.mktemp("process")) as console:
        yield console


@pytest.fixture(scope="module")
def cookie(console: ConsoleProcess) -> str:
    answer = post(console, "/api/sign-in", {"token": console.token})
    return str(answer.headers["Set-Cookie"]).partition(";")[0]


def post(console: ConsoleProcess, path: str, body: object, cookie: str = "") -> Any:
    connection = http.client.HTTPConnection(console.address.removeprefix("http://"), timeout=60)
    headers = {"X-Sparkraft-Console": "1", "Cookie": cookie}
    connection.request("POST", path, json.dumps(body), headers)
    return connection.getresponse()


def problem(console: ConsoleProcess, wish: Json, cookie: str) -> str | None:
    """Why a change cannot be planned."""
    found: str | None = done(console, "/api/change-plan", wish, cookie)["problem"]
    return found


def done(console: ConsoleProcess, path: str, wish: Json, cookie: str) -> Json:
    answer = post(console, path, wish, cookie)
    text = answer.read().decode()
    assert answer.status == 200, text
    found: Json = json.loads(text)
    return found


def asked(cluster: Cluster, work: Callable[[LeadershipAdmin], Coroutine[Any, Any, T]]) -> T:
    async def ask() -> T:
        async with Client(cluster.bootstrap) as client:
            return await work(LeadershipAdmin(client))

    return asyncio.run(ask())


def topic_of(cluster: Cluster, name: str) -> Any:
    async def describe(admin: LeadershipAdmin) -> Any:
        return (await admin.describe_topics([name]))[name]

    return asked(cluster, describe)


def config_of(cluster: Cluster, kind: ResourceType, name: str, config: str) -> str | None:
    async def describe(admin: LeadershipAdmin) -> str | None:
        found = (await admin.describe_configs([(kind, name)], names=[config]))[kind, name]
        assert not isinstance(found, KafkaError)
        return next((one.value for one in found), None)

    return asked(cluster, describe)


def planned(console: ConsoleProcess, wish: Json, cookie: str) -> Json:
    """The plan of a change, once the broker that the console asks knows enough for it."""
    found: Json = {}

    def is_possible() -> bool:
        found.update(done(console, "/api/change-plan", wish, cookie))
        return found["problem"] is None

    wait_until(is_possible, f"{wish} can be planned", 60)
    return found


def has_partitions(cluster: Cluster, topic: str, count: int) -> None:
    def has() -> bool:
        info = topic_of(cluster, topic)
        return not isinstance(info, KafkaError) and len(info.partitions) == count

    wait_until(has, f"{topic} has {count} partitions", 60)


def is_gone(cluster: Cluster, topic: str) -> None:
    wait_until(lambda: isinstance(topic_of(cluster, topic), KafkaError), f"{topic} is deleted", 60)


def remove_throttles(console: ConsoleProcess, cookie: str) -> None:
    wish = {"kind": "remove-throttles"}

    def are_removed() -> bool:
        why = problem(console, wish, cookie)
        if why is None:
            done(console, "/api/change", wish, cookie)
        return why == "no throttle is set"

    wait_until(are_removed, "no throttle is set", 90)


def create(cluster: Cluster, name: str, assignment: dict[int, list[int]]) -> None:
    async def creating(admin: LeadershipAdmin) -> None:
        topics = [NewTopic(name=name, assignment=assignment)]
        made = (await admin.create_topics(topics))[name]
        assert not isinstance(made, KafkaError)

    asked(cluster, creating)
    cluster.until_known(name)


def in_a_shell(command: str) -> None:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    subprocess.run(
        ["bash", "-c", command], check=True, timeout=120, env={**os.environ, "PATH": path}
    )


def replicas_are(cluster: Cluster, name: str, wanted: list[list[int]]) -> None:
    def moved() -> bool:
        info = topic_of(cluster, name)
        return [list(info.partitions[n].replicas) for n in sorted(info.partitions)] == wanted

    wait_until(moved, f"the replicas of {name} are {wanted}", 60)


def test_a_topic_is_planned_created_enlarged_and_deleted(
    cluster: Cluster, console: ConsoleProcess, cookie: str
) -> None:
    wish = {
        "kind": "create-topic", "topic": "made.here", "partitions": "2", "replicationFactor": "",
        "configs": {"retention.ms": "7000"},
    }  # fmt: skip
    assert post(console, "/api/change-plan", wish).status == 403
    plan = done(console, "/api/change-plan", wish, cookie)
    assert {"what": "retention.ms", "from": None, "to": "7000"} in plan["rows"]
    assert "made.here" not in cluster.topics()
    assert post(console, "/api/change", wish).status == 403
    in_a_shell(plan["command"])
    cluster.until_known("made.here")
    has_partitions(cluster, "made.here", 2)
    assert config_of(cluster, ResourceType.TOPIC, "made.here", "retention.ms") == "7000"
    assert post(console, "/api/change", wish, cookie).status == 502

    more = {"kind": "add-partitions", "topic": "made.here", "partitions": 3}
    plan = done(console, "/api/change-plan", more, cookie)
    assert plan["rows"] == [{"what": "partitions", "from": "2", "to": "3"}]
    has_partitions(cluster, "made.here", 2)
    done(console, "/api/change", more, cookie)
    has_partitions(cluster, "made.here", 3)

    gone = {"kind": "delete-topic", "topic": "made.here"}
    assert done(console, "/api/change-plan", gone, cookie)["confirm"] == "made.here"
    assert post(console, "/api/change", gone, cookie).status == 400
    assert post(console, "/api/change", {**gone, "confirm": "made"}, cookie).status == 400
    assert "made.here" in cluster.topics()
    done(console, "/api/change", {**gone, "confirm": "made.here"}, cookie)
    is_gone(cluster, "made.here")
    audit = [line.partition("audit: ")[2] for line in console.output().splitlines()]
    assert "'editor' at 127.0.0.1 set the partitions of topic 'made.here' to 3" in audit
    assert "'editor' at 127.0.0.1 deleted topic 'made.here'" in audit


def test_a_deleted_topic_is_the_only_one_that_the_command_deletes(
    cluster: Cluster, console: ConsoleProcess, cookie: str
) -> None:
    for name in ("one.two", "one-two"):
        create(cluster, name, {0: [1]})
    gone = {"kind": "delete-topic", "topic": "one.two"}
    in_a_shell(done(console, "/api/change-plan", gone, cookie)["command"])
    is_gone(cluster, "one.two")
    assert "one-two" in cluster.topics()


@pytest.mark.parametrize(
    "case",
    [
        ("topic", "configured", "cleanup.policy", "compact,delete"),
        ("broker", "2", "log.cleaner.threads", "2"),
        ("broker", "", "log.cleaner.threads", "3"),
        ("group", "a group", "consumer.session.timeout.ms", "50000"),
    ],
)
def test_a_config_is_validated_set_by_the_command_and_removed(
    cluster: Cluster, console: ConsoleProcess, cookie: str, case: tuple[str, str, str, str]
) -> None:
    resource, name, config, value = case
    if resource == "topic" and name not in cluster.topics():
        create(cluster, name, {0: [1]})
    kind = {"topic": ResourceType.TOPIC, "broker": ResourceType.BROKER}.get(
        resource, ResourceType.GROUP
    )
    before = config_of(cluster, kind, name, config)
    wish = {"kind": "alter-config", "resource": resource, "name": name, "config": config}
    assert "Invalid value moon" in str(problem(console, {**wish, "value": "moon"}, cookie))
    assert post(console, "/api/change", {**wish, "value": "moon"}, cookie).status == 502
    plan = done(console, "/api/change-plan", {**wish, "value": value}, cookie)
    assert plan["rows"] == [{"what": config, "from": before, "to": value}]
    assert config_of(cluster, kind, name, config) == before
    in_a_shell(plan["command"])
    wait_until(lambda: config_of(cluster, kind, name, config) == value, f"{config} is set", 60)

    def is_seen() -> bool:
        plan = done(console, "/api/change-plan", {**wish, "value": None}, cookie)
        return plan["problem"] is None and plan["rows"][0]["from"] == value

    wait_until(is_seen, "the console's broker knows the value", 60)
    done(console, "/api/change", {**wish, "value": None}, cookie)
    wait_until(lambda: config_of(cluster, kind, name, config) == before, "it is removed", 60)
    wait_until(
        lambda: "is not set for" in str(problem(console, {**wish, "value": None}, cookie)),
        "the console's broker knows that it is removed",
        60,
    )


def test_a_secret_is_in_no_plan_and_no_log(console: ConsoleProcess, cookie: str) -> None:
    wish = {
        "kind": "alter-config", "resource": "broker", "name": "3",
        "config": "ssl.keystore.password", "value": "top secret",
    }  # fmt: skip
    plan = done(console, "/api/change-plan", wish, cookie)
    assert "top secret" not in json.dumps(plan)
    assert "top secret" not in json.dumps(done(console, "/api/change", wish, cookie))
    assert "top secret" not in console.output()


def test_configs_have_their_source_default_and_documentation(
    cluster: Cluster, console: ConsoleProcess
) -> None:
    create(cluster, "documented", {0: [1]})
    connection = http.client.HTTPConnection(console.address.removeprefix("http://"), timeout=60)
    connection.request("GET", "/api/configs?resource=broker&name=1")
    found = {one["name"]: one for one in json.loads(connection.getresponse().read())["configs"]}
    timeout = found["broker.session.timeout.ms"]
    assert (timeout["value"], timeout["default"]) == ("20000", "9000")
    assert (timeout["source"], timeout["isReadOnly"]) == ("STATIC_BROKER_CONFIG", True)
    assert "in-sync replicas" in found["min.insync.replicas"]["documentation"]
    assert found["ssl.keystore.password"]["isSensitive"]


def test_leaders_are_elected_and_replicas_move(
    cluster: Cluster, console: ConsoleProcess, cookie: str
) -> None:
    create(cluster, "moving", {0: [1, 2], 1: [1, 2]})
    first = {"kind": "reassign", "topic": "moving", "partition": 0, "replicas": [3, 1]}
    plan = done(console, "/api/change-plan", first, cookie)
    assert plan["rows"] == [{"what": "replicas of moving-0", "from": "1, 2", "to": "3, 1"}]
    in_a_shell(plan["command"])
    replicas_are(cluster, "moving", [[3, 1], [1, 2]])
    election = {"kind": "elect", "election": "preferred", "topic": "moving"}
    plan = planned(console, election, cookie)
    assert plan["rows"] == [{"what": "leader of moving-0", "from": "1", "to": "3"}]
    in_a_shell(plan["command"])
    wait_until(lambda: topic_of(cluster, "moving").partitions[0].leader == 3, "3 leads", 60)
    wait_until(
        lambda: "every preferred replica" in str(problem(console, election, cookie)),
        "all brokers know the leader",
        60,
    )

    spread = {"kind": "reassign", "topic": "moving", "replicas": [2, 3], "throttle": 10**6}
    done(console, "/api/change-plan", spread, cookie)
    done(console, "/api/change", spread, cookie)
    replicas_are(cluster, "moving", [[2, 3], [3, 2]])
    rate = "leader.replication.throttled.rate"
    wait_until(
        lambda: config_of(cluster, ResourceType.BROKER, "3", rate) == "1000000", "a throttle", 60
    )
    in_a_shell(planned(console, {"kind": "remove-throttles"}, cookie)["command"])
    remove_throttles(console, cookie)


def get(console: ConsoleProcess, path: str) -> Json:
    connection = http.client.HTTPConnection(console.address.removeprefix("http://"), timeout=60)
    connection.request("GET", path)
    found: Json = json.loads(connection.getresponse().read())
    return found


def offset_of(console: ConsoleProcess, partition: str, what: str) -> int:
    """The offset of the newest change of a partition that does `what`."""
    changes = get(console, "/api/changes")["changes"]
    found = [
        int(one["offset"])
        for one in changes
        if one["text"].startswith(f"{partition}: ") and what in one["text"]
    ]
    assert found, changes
    return found[0]


def without_progress(moves: list[Json]) -> list[Json]:
    return [{key: value for key, value in one.items() if key != "progress"} for one in moves]


def test_a_slow_move_is_shown_and_canceled(
    cluster: Cluster, console: ConsoleProcess, cookie: str, capsys: pytest.CaptureFixture[str]
) -> None:
    create(cluster, "slow", {0: [1]})

    async def send() -> None:
        async with Client(cluster.bootstrap) as client, Producer(client) as producer:
            for _ in range(8):
                await (await producer.send("slow", os.urandom(900_000)))

    asyncio.run(send())
    wish = {"kind": "reassign", "topic": "slow", "partition": 0, "replicas": [2], "throttle": 1}
    done(console, "/api/change", wish, cookie)

    def has_begun() -> bool:
        found = get(console, "/api/reassignments")
        (move,) = found["moves"]
        assert (move["topic"], move["adding"], move["removing"]) == ("slow", [2], [1])
        (progress,) = move["progress"]
        has_throttles = {one["config"] for one in found["throttles"]} >= {
            "leader.replication.throttled.rate", "leader.replication.throttled.replicas",
        }  # fmt: skip
        return has_throttles and 0 < int(progress["bytes"]) < int(progress["ofBytes"])

    wait_until(has_begun, "a part of the replica has arrived", 60)
    listed = get(console, "/api/reassignments")

    def printed(command: str) -> Any:
        capsys.readouterr()
        assert cli.main([*command.split()[1:], "--output", "json"]) == 0
        return json.loads(capsys.readouterr().out)

    assert without_progress(listed["moves"]) == printed(listed["command"])
    assert "still being" in str(problem(console, {"kind": "remove-throttles"}, cookie))
    cancel = {"kind": "cancel-reassignment", "topic": "slow"}
    plan = done(console, "/api/change-plan", cancel, cookie)
    assert plan["rows"] == [{"what": "replicas of slow-0", "from": "2, 1", "to": "1"}]
    in_a_shell(plan["command"])
    replicas_are(cluster, "slow", [[1]])
    assert "nothing of it" in str(problem(console, cancel, cookie))
    remove_throttles(console, cookie)
    # As of then, also the throttles that are removed by now.
    begun = offset_of(console, "slow-0", "adding none → 2")
    canceled = offset_of(console, "slow-0", "adding 2 → none")
    then = get(console, f"/api/reassignments?at={begun}")
    assert then["moves"] == [{**one, "progress": None} for one in listed["moves"]]
    assert without_progress(then["moves"]) == printed(then["command"])
    assert then["throttles"] == listed["throttles"]
    after = get(console, f"/api/reassignments?at={canceled}")
    assert after["moves"] == printed(after["command"]) == []
    assert get(console, "/api/reassignments")["throttles"] == []


@pytest.mark.browser
def test_the_screen_of_moves_shows_those_of_an_earlier_moment(
    browser: Browser, cluster: Cluster, console: ConsoleProcess, cookie: str, tmp_path: Path
) -> None:
    create(cluster, "earlier", {0: [1]})
    wish = {"kind": "reassign", "topic": "earlier", "partition": 0, "replicas": [2]}
    done(console, "/api/change", wish, cookie)
    replicas_are(cluster, "earlier", [[2]])
    at = offset_of(console, "earlier-0", "adding none → 2")

    async def look(console: ConsoleProcess) -> None:
        path = f"/reassignments?as-of={at}#t={console.token}"
        async with browser.visiting(console.address, path) as visit:
            page = visit.page
            moves = page.get_by_role("table", name="Reassignments")
            lead, forms = page.locator(".lead"), page.get_by_text("Remove all throttles")
            await expect(page.locator("#moment .label")).to_contain_text(f"as of offset {at}")
            await expect(lead).to_have_text("1 partition being reassigned.")
            cells = moves.get_by_role("row").nth(1).get_by_role("cell")
            await expect(cells).to_have_text(["earlier-0", "2, 1", "2", "1"])
            await expect(page.locator("p.note")).to_have_count(0)
            await expect(page.locator(".command code")).to_contain_text(f"--at-offset {at}")
            await expect(page.locator("#visitor")).to_contain_text("editor")
            await expect(forms).to_have_count(0)
            await page.get_by_role("button", name="One change back").click()
            await expect(lead).to_have_text("Nothing is being reassigned.")
            await page.get_by_role("button", name="One change on").click()
            await expect(moves).to_contain_text("earlier-0")
            await page.get_by_role("button", name="Back to now").click()
            await expect(lead).to_have_text("Nothing is being reassigned.")
            await expect(forms).to_be_visible()

    with ConsoleProcess(cluster.bootstrap, tmp_path) as own:
        browser.run(look(own))


def test_records_are_deleted_below_an_offset(
    cluster: Cluster, console: ConsoleProcess, cookie: str
) -> None:
    create(cluster, "shortened", {0: [1]})

    async def send() -> None:
        async with Client(cluster.bootstrap) as client, Producer(client) as producer:
            for _ in range(5):
                await (await producer.send("shortened", b"x"))

    asyncio.run(send())
    wish = {"kind": "delete-records", "topic": "shortened", "partition": 0, "offset": "3"}
    assert "at most 5" in str(problem(console, {**wish, "offset": 6}, cookie))
    plan = done(console, "/api/change-plan", wish, cookie)
    assert plan["rows"] == [{"what": "first offset", "from": "0", "to": "3"}]
    assert post(console, "/api/change", wish, cookie).status == 400
    in_a_shell(plan["command"])

    async def first(admin: LeadershipAdmin) -> Any:
        return (await admin.list_offsets({("shortened", 0): EARLIEST}))["shortened", 0]

    assert asked(cluster, first).offset == 3


def test_an_unclean_election_needs_its_name_and_loses_nothing_here(
    cluster: Cluster, console: ConsoleProcess, cookie: str
) -> None:
    create(cluster, "clean", {0: [1, 2]})
    wish = {"kind": "elect", "election": "unclean", "topic": "clean", "partition": 0}
    refused = post(console, "/api/change", wish, cookie)
    assert (refused.status, refused.read()) == (400, b"type clean to confirm\n")
    assert "no partition without a leader" in str(problem(console, wish, cookie))


@pytest.mark.parametrize(
    ("wish", "sentence"),
    [
        ({}, "'kind' is missing"),
        ({"kind": "moon"}, "kind must be one of create-topic"),
        ({"kind": "create-topic", "topic": ""}, "topic must be a text"),
        ({"kind": "create-topic", "topic": "t", "partitions": 0}, "partitions must be a number"),
        ({"kind": "create-topic", "topic": "t", "partitions": True}, "partitions must be"),
        ({"kind": "create-topic", "topic": "t", "configs": ["a"]}, "configs must be an object"),
        ({"kind": "add-partitions", "topic": "t"}, "'partitions' is missing"),
        ({"kind": "alter-config", "resource": "moon", "name": "t", "config": "c", "value": "1"},
         "belongs to a topic, broker, group"),
        ({"kind": "alter-config", "resource": "topic", "name": "", "config": "c", "value": "1"},
         "the name of the topic is missing"),
        ({"kind": "alter-config", "resource": "broker", "name": "x", "config": "c", "value": "1"},
         "a broker's name is a number"),
        ({"kind": "alter-config", "resource": "topic", "name": "t", "config": "c", "value": 1},
         "value must be null or a text"),
        ({"kind": "elect", "election": "moon", "topic": "t"}, "preferred or unclean"),
        ({"kind": "reassign", "topic": "t", "replicas": []}, "a list of 1 to"),
        ({"kind": "reassign", "topic": "t", "replicas": ["x"]}, "a broker must be a number"),
    ],
)  # fmt: skip
def test_a_malformed_wish_is_refused(
    console: ConsoleProcess, cookie: str, wish: Json, sentence: str
) -> None:
    answer = post(console, "/api/change", wish, cookie)
    assert answer.status == 400
    assert sentence in answer.read().decode()
    assert sentence in str(problem(console, wish, cookie))


def test_a_wish_that_makes_no_sense_is_refused(
    cluster: Cluster, console: ConsoleProcess, cookie: str
) -> None:
    create(cluster, "sense", {0: [1, 2]})
    for wish, sentence in (
        ({"kind": "reassign", "topic": "sense", "replicas": [9]}, "2 replicas need 2 brokers"),
        ({"kind": "reassign", "topic": "sense", "partition": 0, "replicas": [9]}, "broker id 9"),
        ({"kind": "reassign", "topic": "sense", "partition": 0, "replicas": [1, 1]}, "duplicate"),
        ({"kind": "reassign", "topic": "sense", "partition": 7, "replicas": [1]}, "sense-7"),
        ({"kind": "reassign", "topic": "sense", "partition": 0, "replicas": [1, 2]}, "already"),
        ({"kind": "reassign", "topic": "none", "replicas": [1]}, "none not found"),
        ({"kind": "elect", "election": "preferred", "topic": "sense", "partition": 7}, "exist"),
        ({"kind": "cancel-reassignment", "topic": "sense"}, "nothing of it"),
    ):
        assert sentence in str(problem(console, wish, cookie))
        assert post(console, "/api/change", wish, cookie).status in {400, 404}


def test_partitions_spread_over_racks() -> None:
    from sparkraft.client.cluster import Node

    nodes = [Node(id=n, host="h", port=1, rack=rack) for n, rack in ((1, "a"), (2, "a"), (3, "b"))]
    current = {("t", n): [1, 2] for n in range(3)}
    assert _spread(current, [1, 2, 3], nodes) == {
        ("t", 0): [1, 3], ("t", 1): [3, 2], ("t", 2): [2, 1],
    }  # fmt: skip


def test_a_value_that_the_command_would_change_has_no_command() -> None:
    def command(value: str) -> str | None:
        change: Any = parse_change(
            {"kind": "alter-config", "resource": "topic", "name": "t", "config": "c",
             "value": value}
        )  # fmt: skip
        found: str | None = change._command("h:1", is_secret=False)
        return found

    assert command("a,b") == (
        "sparkraft configs --bootstrap-server h:1 --alter --entity-type topics --entity-name t "
        "--add-config 'c=[a,b]'"
    )
    for odd in ("[a]", " a", "a\nb", "a\\b"):
        assert command(odd) is None


async def readers_cannot_edit(browser: Browser, console: ConsoleProcess) -> None:
    path = "/configs?resource=topic&name=drawn"
    async with browser.visiting(console.address, path) as visit:
        await expect(visit.page.get_by_role("cell", name="9000")).to_be_visible()
        await expect(visit.page.get_by_role("button", name="Edit")).to_have_count(0)


@pytest.mark.browser
def test_an_editor_changes_the_cluster_on_its_pages(
    browser: Browser, cluster: Cluster, tmp_path: Path
) -> None:
    async def look(console: ConsoleProcess) -> None:
        async with browser.visiting(console.address, f"/topics#t={console.token}") as visit:
            page = visit.page
            await page.get_by_text("Create a topic").click()
            form = page.locator('[data-change="create-topic"]').first
            await form.get_by_label("Name").fill("drawn")
            await form.get_by_label("Partitions").fill("2")
            await form.get_by_label("Configs").fill("retention.ms=moon")
            await form.get_by_role("button", name="Show the change").click()
            await expect(page.get_by_role("alert")).to_contain_text("Invalid value moon")
            await form.get_by_label("Configs").fill("retention.ms=8000")
            await form.get_by_role("button", name="Show the change").click()
            await expect(page.get_by_role("alert")).to_have_count(0)
            await expect(page.locator(".plan .command")).to_contain_text("--config")
            await page.get_by_role("button", name="Apply").click()
            await expect(page.get_by_text("Done: created topic 'drawn'.")).to_be_visible()
            await asyncio.to_thread(cluster.until_known, "drawn")
            await page.get_by_role("link", name="drawn").click()
            await page.get_by_role("link", name="Configs", exact=True).click()
            edit = page.get_by_role("button", name="Edit retention.ms")
            await expect(edit).to_be_in_viewport()
            await edit.click()
            await page.get_by_label("Value", exact=True).fill("9000")
            await page.get_by_role("button", name="Show the change").click()
            await expect(page.locator(".plan tbody tr")).to_contain_text("8000")
            await page.get_by_role("button", name="Apply").click()
            await expect(page.get_by_role("cell", name="9000")).to_be_visible()
            await readers_cannot_edit(browser, console)
            await page.get_by_label("also those with the default").check()
            await expect(
                page.get_by_role("cell", name="cleanup.policy", exact=True)
            ).to_be_visible()
            await page.get_by_role("link", name="drawn").click()
            await page.get_by_text("Delete the topic").click()
            form = page.locator("details", has_text="Delete the topic")
            await form.get_by_role("button", name="Show the change").click()
            await page.get_by_label("Type drawn to confirm").fill("drawn")
            await page.get_by_role("button", name="Apply").click()
            await expect(page.get_by_text("Done: deleted topic 'drawn'.")).to_be_visible()

    with ConsoleProcess(cluster.bootstrap, tmp_path) as console:
        browser.run(look(console))
    is_gone(cluster, "drawn")
