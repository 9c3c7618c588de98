"""Names and payloads that are markup: shown as text on every screen, and never run.

Any client of a cluster chooses group ids, client ids, transactional ids, records and
documents of pipelines; an admin chooses principals, users, racks and paths.
"""

import asyncio
import http.client
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple
from urllib.parse import quote

import pytest
from playwright.async_api import Page, expect

from sparkraft.cli import main as cli
from sparkraft.client.acl_admin import AclAdmin
from sparkraft.client.cluster import Cluster
from sparkraft.client.producer import Producer, ProducerSettings
from sparkraft.client.quota_admin import QuotaAdmin
from sparkraft.client.transactional_producer import TransactionalProducer
from sparkraft.security.acls import (
    Acl,
    AclOperation,
    AclPermissionType,
    AclResourceType,
    PatternType,
)
from sparkraft.security.quotas import CLIENT_ID, USER, quota_entity
from sparkraft.security.standard_authorizer import CLASS_NAME
from tests.support.console import (
    WAIT_MS,
    Browser,
    ConsoleProcess,
    untested_screens,
    violations,
)
from tests.support.nodes import SparkraftNode
from tests.support.outside_tools import Missing, axe_core

pytestmark = [pytest.mark.real_clients, pytest.mark.browser]

expect.set_options(timeout=WAIT_MS)

MARKUP = "<img src=x onerror=\"document.title='run'\">"
TOPIC = "__proto__"
GROUP = f"/../{MARKUP}"
BATCH = {"pipeline": MARKUP, "batch": 1, "seconds": 0.5, "records": 2, "watermark": MARKUP}
ODD_BATCHES: list[Any] = [
    {**BATCH, "watermark": 7}, {**BATCH, "seconds": MARKUP}, {**BATCH, "lag": {"toString": 1}},
    {**BATCH, "batch": [1]}, {**BATCH, "records": 1e999}, {"pipeline": MARKUP}, [MARKUP], MARKUP,
]  # fmt: skip


class Place(NamedTuple):
    """A console over a node whose data is hostile."""

    console: ConsoleProcess
    node: SparkraftNode


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("hostile")
    home = folder / MARKUP.replace("/", "|")
    home.mkdir()
    overrides = {
        "authorizer.class.name": CLASS_NAME,
        "super.users": "User:ANONYMOUS",
        "broker.rack": MARKUP,
    }
    with SparkraftNode(home, overrides=overrides) as node:
        read(node.bootstrap, folder)
        asyncio.run(prepare(node.bootstrap))
        with ConsoleProcess(node.bootstrap, folder) as console:
            yield Place(console, node)


def read(bootstrap: str, folder: Path) -> None:
    """As a member of a group whose id and client id are markup."""
    servers = ["--bootstrap-server", bootstrap]
    assert cli.main(["topics", *servers, "--create", "--topic", TOPIC]) == 0
    words = ["console-consumer", *servers, "--topic", TOPIC, "--group", GROUP]
    assert (
        cli.main([*words, "--timeout-ms", "500", "--command-property", f"client.id={MARKUP}"]) == 0
    )


async def prepare(bootstrap: str) -> None:
    acl = Acl(
        resource_type=AclResourceType.GROUP, resource_name=MARKUP, principal=f"User:{MARKUP}",
        pattern_type=PatternType.PREFIXED, host="*", operation=AclOperation.READ,
        permission_type=AclPermissionType.ALLOW,
    )  # fmt: skip
    entity = quota_entity([(USER, MARKUP), (CLIENT_ID, MARKUP)])
    async with Cluster(bootstrap) as cluster:
        assert await AclAdmin(cluster).create_acls([acl]) == [None]
        assert (
            await QuotaAdmin(cluster).alter_client_quotas(entity, {"producer_byte_rate": 1e9})
            is None
        )
        async with Producer(cluster) as producer:
            headers = [(MARKUP, MARKUP.encode())]
            key = MARKUP.encode()
            await (await producer.send(TOPIC, MARKUP.encode(), key=key, headers=headers))
            for document in [BATCH, *ODD_BATCHES]:
                value = json.dumps(document).encode()
                await (await producer.send("pipeline-batches", value, key=key))
        settings = ProducerSettings(transactional_id=MARKUP)
        async with TransactionalProducer(cluster, settings) as transactional:
            await transactional.init_transactions()


SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")

SCREENS = {
    "/": 1,
    "/groups": 1,
    f"/group?{quote('id')}={quote(GROUP)}": 2,
    f"/topics/{TOPIC}/messages": 2,
    "/security": 3,
    "/transactions": 1,
    "/pipelines": 1,
    "/log-dirs": 1,
    f"/configs?resource=group&name={quote(MARKUP)}": 1,
    "/changes": 1,
    "/brokers/1": 1,
}
"""Screens that show hostile text, and how often at least."""

OTHERS = [
    "/quorum",
    "/controller",
    "/topics",
    f"/topics/{TOPIC}",
    f"/topics/{TOPIC}/0",
    f"/configs?resource=topic&name={TOPIC}",
    "/reassignments",
]
"""Screens whose only text that others choose is the name of a topic, which nodes restrict."""


def test_every_screen_is_checked() -> None:
    assert untested_screens([*SCREENS, *OTHERS]) == set()


async def is_text(page: Page, count: int) -> None:
    """The markup is shown `count` times or more, and the page has no element of it."""
    if count > 0:
        await expect(page.get_by_text(MARKUP).nth(count - 1)).to_be_attached()
    assert await page.locator("img:not(header img)").count() == 0
    assert await page.title() != "run"


@pytest.mark.parametrize("path", SCREENS)
def test_markup_is_text_on_every_screen(place: Place, browser: Browser, path: str) -> None:
    async def look() -> None:
        async with browser.visiting(place.console.address, path) as visit:
            if "messages" in path:
                await visit.page.locator("tbody summary").first.click()
            await is_text(visit.page, SCREENS[path])

    async def look_while_a_transaction_is_open() -> None:
        settings = ProducerSettings(transactional_id=MARKUP)
        async with (
            Cluster(place.node.bootstrap) as cluster,
            TransactionalProducer(cluster, settings) as producer,
        ):
            await producer.init_transactions()
            producer.begin_transaction()
            await (await producer.send(TOPIC, b"open", partition=0))
            await look()
            await producer.abort_transaction()

    browser.run(look_while_a_transaction_is_open() if "transactions" in path else look())


@pytest.mark.long
@pytest.mark.parametrize("path", OTHERS)
def test_a_topic_named_as_a_property_is_shown(place: Place, browser: Browser, path: str) -> None:
    """Every JavaScript object has a property of this name."""

    async def look() -> None:
        async with browser.visiting(place.console.address, path) as visit:
            await expect(visit.page.locator(".command, .note").first).to_be_visible()
            if path.startswith("/topics"):
                await expect(visit.page.get_by_text(TOPIC).first).to_be_visible()
            await is_text(visit.page, 0)

    browser.run(look())


def test_a_resource_with_markup_as_its_name_can_be_asked_about(
    place: Place, browser: Browser
) -> None:
    async def ask() -> None:
        async with browser.visiting(place.console.address, "/security") as visit:
            form = visit.page.locator('form[data-form="who-may"]')
            await form.get_by_label("Name").fill(MARKUP)
            await form.locator("select[name=type]").select_option("GROUP")
            await form.get_by_role("button", name="Show").click()
            await expect(visit.page.locator("#who-may tbody")).to_contain_text(f"User:{MARKUP}")
            await is_text(visit.page, 4)

    browser.run(ask())


def test_documents_that_are_no_batches_are_counted(place: Place) -> None:
    host = place.console.address.removeprefix("http://")
    connection = http.client.HTTPConnection(host, timeout=60)
    connection.request("GET", "/api/pipelines?topic=pipeline-batches")
    found = json.loads(connection.getresponse().read())
    assert found["damaged"] == len(ODD_BATCHES)
    (one,) = found["pipelines"]
    assert (one["pipeline"], len(one["batches"])) == (MARKUP, 1)


@pytest.mark.long
@pytest.mark.parametrize("path", SCREENS)
def test_axe_finds_no_violation(place: Place, browser: Browser, path: str) -> None:
    """The screens of `test_accessible`, with rows in all tables."""
    axe = axe_core()
    if isinstance(axe, Missing):
        pytest.skip(axe.reason)

    async def check() -> None:
        async with browser.visiting(place.console.address, path) as visit:
            page = visit.page
            await expect(page.locator("table").first).to_be_visible()
            await page.evaluate(axe.read_text())
            for scheme in SCHEMES:
                await page.emulate_media(color_scheme=scheme)
                assert (scheme, await violations(page)) == (scheme, [])
            await page.set_viewport_size({"width": 640, "height": 450})
            assert await page.evaluate("document.documentElement.scrollWidth") <= 640

    browser.run(check())
