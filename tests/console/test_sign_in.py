"""Signing in over HTTP and in a browser, and the role that each route takes."""

import asyncio
import http.client
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Literal, cast

import pytest

from sparkraft.cli import main as cli
from sparkraft.console.access import Access, AccessSettings
from sparkraft.console.application import SCREENS, Console
from sparkraft.console.sign_in import SignIn, json_body
from tests.support.console import Browser, ConsoleProcess, violations
from tests.support.nodes import SparkraftNode
from tests.support.outside_tools import Missing, axe_core

pytestmark = pytest.mark.real_clients

PASSWORD = "a long password"
ROUTES = {
    "viewer": [
        "/api/cluster",
        "/api/quorum",
        "/api/topics",
        "/api/topic?topic=none",
        "/api/partition?topic=none&partition=0",
        "/api/broker?broker=1",
        "/api/groups",
        "/api/group?group=none",
        "/api/controller",
        "/api/configs?resource=topic&name=none",
        "/api/log-dirs",
        "/api/reassignments",
        "/api/security",
        "/api/who-may?operation=READ&type=TOPIC&name=none",
        "/api/pipelines?topic=none",
        "/api/transactions",
        "/api/producers?topic=none&partition=0",
        "/api/timeline",
        "/api/moment?change=0",
        "/api/past?at=1",
        "/api/changes",
        "/events",
    ],
    "reader": ["/api/messages?topic=none", "/api/export?topic=none"],
    "editor": [
        "/api/reset",
        "/api/reset-plan",
        "/api/send",
        "/api/change",
        "/api/change-plan",
    ],
}
"""Role -> the routes that take it."""

FOR_ALL = {*SCREENS, "/static/{name}", "/api/me", "/api/sign-in", "/api/sign-out"}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkraftNode]:
    with SparkraftNode(tmp_path_factory.mktemp("node")) as node:
        yield node


@pytest.fixture(scope="module")
def users(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("users") / "users"


@pytest.fixture(scope="module")
def console(
    node: SparkraftNode, users: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ConsoleProcess]:
    with pytest.MonkeyPatch.context() as patch:
        for role in ROUTES:
            words = ["console-users", "--file", str(users), "--set", f"a-{role}", "--role", role]
            answers = iter([f"{PASSWORD}\n"])
            patch.setattr("sys.stdin.isatty", lambda: False)
            patch.setattr("sys.stdin.readline", lambda answers=answers: next(answers))
            assert cli.main(words) == 0
    with ConsoleProcess(
        node.bootstrap, tmp_path_factory.mktemp("console"), ["--users", str(users)]
    ) as console:
        yield console


def request(
    console: ConsoleProcess, path: str, body: object = None, **headers: str
) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection(console.address.removeprefix("http://"), timeout=60)
    method = "GET" if body is None else "POST"
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path, None if body is None else json.dumps(body), named)
    return connection.getresponse()


def post(console: ConsoleProcess, path: str, body: object) -> http.client.HTTPResponse:
    return request(console, path, body, X_Sparkraft_Console="1")


def signed_in(console: ConsoleProcess, name: str, password: str = PASSWORD) -> str:
    answer = post(console, "/api/sign-in", {"user": name, "password": password})
    assert answer.status == 204, answer.read()
    cookie = answer.headers["Set-Cookie"]
    assert {"HttpOnly", "Path=/", "SameSite=strict"} <= set(cookie.split("; "))
    return cookie.partition(";")[0]


def test_every_route_takes_a_role():
    none = cast("object", None)
    parts = [none] * 4
    sender = none
    sign_in = SignIn(Access(AccessSettings()), "cookie")
    others = dict.fromkeys(("past", "resetter", "changer", "more"), none)
    routes = Console(*parts, sign_in, sender, **others).routes()  # type: ignore[arg-type]
    found = {route.path.replace("{", ":").replace("}", "") for route in routes}
    listed = {path.partition("?")[0] for paths in ROUTES.values() for path in paths}
    assert found == listed | {path.replace("{", ":").replace("}", "") for path in FOR_ALL}


@pytest.mark.parametrize("role", [None, *ROUTES])
def test_a_route_is_refused_below_its_role(console: ConsoleProcess, role: str | None) -> None:
    cookie = {} if role is None else {"Cookie": signed_in(console, f"a-{role}")}
    order = [None, *ROUTES]
    for needed, paths in ROUTES.items():
        for path in paths:
            body = {} if needed == "editor" else None
            status = request(console, path, body, X_Sparkraft_Console="1", **cookie).status
            is_refused = status in {401, 403}
            assert is_refused is (order.index(role) < order.index(needed)), (role, path, status)
            assert status != 401 or role is None


def test_pages_are_for_everyone(console: ConsoleProcess) -> None:
    assert request(console, "/topics").status == 200
    assert request(console, "/static/app.js").status == 200
    me = json.loads(request(console, "/api/me").read())
    assert me == {"name": None, "role": None, "acceptsPasswords": True}


def test_a_session_ends_with_its_sign_out(console: ConsoleProcess) -> None:
    cookie = signed_in(console, "a-reader")
    me = json.loads(request(console, "/api/me", Cookie=cookie).read())
    assert (me["name"], me["role"]) == ("a-reader", "reader")
    answer = request(console, "/api/sign-out", {}, Cookie=cookie, X_Sparkraft_Console="1")
    assert answer.status == 204
    assert request(console, "/api/cluster", Cookie=cookie).status == 401


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"user": "a-reader", "password": "wrong"}, 401),
        ({"user": "a-reader"}, 400),
        ({"token": "guess"}, 401),
        ([], 400),
        ("x" * (2 << 20), 400),
    ],
)
def test_a_wrong_sign_in_is_refused(console: ConsoleProcess, body: object, status: int) -> None:
    answer = post(console, "/api/sign-in", body)
    assert answer.status == status
    assert "Set-Cookie" not in answer.headers


def test_a_deeply_nested_body_is_refused() -> None:
    class Nested:
        async def stream(self) -> AsyncIterator[bytes]:
            yield b"[" * 100_000

    with pytest.raises(ValueError, match="the body has too many nested arrays and objects"):
        asyncio.run(json_body(cast("Any", Nested())))


def test_a_post_of_another_site_is_refused(console: ConsoleProcess) -> None:
    body = {"user": "a-reader", "password": PASSWORD}
    assert request(console, "/api/sign-in", body).status == 403
    answer = request(
        console, "/api/sign-in", body, X_Sparkraft_Console="1", Origin="http://evil.example"
    )
    assert answer.status == 403


def test_a_forwarded_address_is_not_believed(node: SparkraftNode, tmp_path: Path) -> None:
    options = ["--trusted-proxy", "10.1.2.3"]
    with ConsoleProcess(node.bootstrap, tmp_path, options) as console:
        claims = {"X_Forwarded_For": "10.1.2.3", "X_Forwarded_User": "ann"}
        assert request(console, "/api/cluster", **claims).status == 401


def test_a_proxy_names_the_visitor(node: SparkraftNode, tmp_path: Path) -> None:
    options = ["--trusted-proxy", "127.0.0.0/8", "--user-header", "X-User"]
    with ConsoleProcess(node.bootstrap, tmp_path, options) as console:
        assert request(console, "/api/cluster").status == 401
        assert request(console, "/api/cluster", X_User="ann").status == 200
        assert request(console, "/api/messages?topic=none", X_User="ann").status == 403


def test_the_token_of_the_address_works_once(node: SparkraftNode, tmp_path: Path) -> None:
    with ConsoleProcess(node.bootstrap, tmp_path) as console:
        assert json.loads(request(console, "/api/me").read())["role"] == "reader"
        assert post(console, "/api/sign-in", {"token": console.token}).status == 204
        assert post(console, "/api/sign-in", {"token": console.token}).status == 401


def test_a_console_that_hides_messages(node: SparkraftNode, tmp_path: Path) -> None:
    with ConsoleProcess(node.bootstrap, tmp_path, ["--hide-messages"]) as console:
        assert console.token == ""
        assert request(console, "/api/cluster").status == 200
        assert request(console, "/api/messages?topic=none").status == 403


def test_a_console_that_is_read_only(node: SparkraftNode, tmp_path: Path) -> None:
    """It has no token, and an editor of its file reads records and changes nothing."""
    users = str(tmp_path / "users")
    words = ["console-users", "--file", users, "--set", "ann", "--role", "editor", "--no-password"]
    assert cli.main(words) == 0
    options = ["--read-only", "--users", users, "--trusted-proxy", "127.0.0.1"]
    with ConsoleProcess(node.bootstrap, tmp_path, options) as console:
        assert console.token == ""
        ann = {"X_Forwarded_User": "ann", "X_Sparkraft_Console": "1"}
        assert json.loads(request(console, "/api/me", **ann).read())["role"] == "reader"
        assert request(console, "/api/messages?topic=none", **ann).status == 404
        for path in ROUTES["editor"]:
            assert request(console, path, {}, **ann).status == 403


@pytest.mark.browser
def test_a_visitor_signs_in_and_out(
    browser: Browser, node: SparkraftNode, console: ConsoleProcess
) -> None:
    async def visit() -> None:
        async with browser.visiting(console.address, "/topics") as visit:
            page = visit.page
            await page.get_by_label("User").fill("a-viewer")
            await page.get_by_label("Password").fill(PASSWORD)
            await page.get_by_role("button", name="Sign in").click()
            await page.get_by_text("a-viewer · viewer").wait_for()
            await page.get_by_role("heading", name="Topics").wait_for()
            await page.get_by_role("button", name="Sign out").click()
            await page.get_by_role("heading", name="Sign in").wait_for()

    browser.run(visit())


@pytest.mark.browser
@pytest.mark.long
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_violation(
    browser: Browser, console: ConsoleProcess, scheme: Literal["light", "dark"]
) -> None:
    """In the form and after a refusal, also at 200 % zoom."""
    axe = axe_core()
    if isinstance(axe, Missing):
        pytest.skip(axe.reason)

    async def check() -> None:
        async with browser.visiting(console.address, "/topics", scheme=scheme) as visit:
            page = visit.page
            await page.get_by_label("Password").fill("a wrong password")
            await page.evaluate(axe.read_text())
            assert await violations(page) == []
            await page.get_by_label("User").fill(f"unknown-{scheme}")
            await page.get_by_role("button", name="Sign in").click()
            await page.get_by_role("alert").wait_for()
            assert await violations(page) == []
            await page.set_viewport_size({"width": 640, "height": 450})
            assert await page.evaluate("document.documentElement.scrollWidth") <= 640
            # The browser itself logs the refusal.
            visit.problems[:] = [one for one in visit.problems if "401" not in one]

    browser.run(check())


@pytest.mark.browser
def test_the_printed_address_signs_in(
    browser: Browser, node: SparkraftNode, tmp_path: Path
) -> None:
    async def visit() -> None:
        async with browser.visiting(console.address, f"/#t={console.token}") as visit:
            await visit.page.locator("#visitor", has_text="editor").wait_for()
            nav = await visit.page.locator("#screens").bounding_box()
            assert nav is not None
            assert nav["height"] < 50, "the screens have one line"
            assert "#" not in visit.page.url

    with ConsoleProcess(node.bootstrap, tmp_path) as console:
        browser.run(visit())


def test_users_are_listed_and_removed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = ["console-users", "--file", str(tmp_path / "users")]
    assert cli.main([*file, "--list"]) == 1
    for name, role in [("ann", "editor"), ("*", "viewer")]:
        assert cli.main([*file, "--set", name, "--role", role, "--no-password"]) == 0
    assert (tmp_path / "users").stat().st_mode & 0o777 == 0o600
    assert cli.main([*file, "--remove", "*"]) == 0
    assert cli.main([*file, "--remove", "*"]) == 1
    capsys.readouterr()
    assert cli.main([*file, "--list"]) == 0
    assert capsys.readouterr().out == "editor  ann  no password\n"
    assert cli.main([*file, "--set", "a:b", "--role", "viewer"]) == 2
    assert cli.main([*file, "--set", "ann", "--role", "admin"]) == 2


def test_only_a_console_with_a_sign_in_listens_elsewhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["console", "--bootstrap-server", "127.0.0.1:1", "--listen", "0.0.0.0:0"]
    assert cli.main(words) == 2
    assert "0.0.0.0 is not a loopback address" in capsys.readouterr().err
    assert cli.main([*words, "--trusted-proxy", "10.0.0.1"]) == 1
    assert "cannot connect to 127.0.0.1:1" in capsys.readouterr().err
    assert cli.main([*words, "--users", str(tmp_path / "none")]) == 2
    assert cli.main([*words, "--trusted-proxy", "nowhere"]) == 2
