"""The console as a process, and pages of it in a real Chromium.

Tests of pages are coroutines over Playwright's asyncio interface, run by `Browser.run`: work that
blocks, as starting and stopping nodes, runs in a thread (`asyncio.to_thread`).
"""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal, Self

from playwright.async_api import Browser as Chromium
from playwright.async_api import ConsoleMessage, Page, async_playwright

from sparkraft.console.application import SCREENS
from tests.support.ports import wait_until

START_SECONDS = 60.0
WAIT_MS = 60_000.0
"""How long a page may take to show something, on a machine that has other work."""


class ConsoleProcess:
    """`sparkraft console` on a free port."""

    def __init__(self, bootstrap: str, folder: Path, options: Sequence[str] = ()) -> None:
        self._output = folder / "console.out"
        self._command = [
            sys.executable, "-m", "sparkraft.cli.main", "console",
            "--bootstrap-server", bootstrap, "--listen", "127.0.0.1:0", *options,
        ]  # fmt: skip
        self.process: subprocess.Popen[bytes] | None = None
        self.address = ""
        self.token = ""
        """The one-time token of the printed address, if it has one."""

    def output(self) -> str:
        return self._output.read_text(errors="replace")

    def __enter__(self) -> Self:
        with self._output.open("wb") as output:
            self.process = subprocess.Popen(self._command, stdout=output, stderr=output)

        def announced() -> bool:
            assert self.process is not None
            assert self.process.poll() is None, self.output()
            return self.output().startswith("console  http") and "\n" in self.output()

        try:
            wait_until(announced, "the console prints its address", START_SECONDS)
        except BaseException:
            self.__exit__()
            raise
        self.address, _, self.token = self.output().split()[1].partition("/#t=")
        self.address = self.address.rstrip("/")
        return self

    def stop(self) -> int:
        """SIGTERM, and wait for the end; the exit code."""
        assert self.process is not None
        process, self.process = self.process, None
        os.kill(process.pid, signal.SIGTERM)
        try:
            return process.wait(60)
        finally:
            process.kill()

    def __exit__(self, *_: object) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait(60)


class Visit:
    """A page, and what must not happen in it."""

    def __init__(self, page: Page, address: str) -> None:
        self.page = page
        self.address = address
        self.problems: list[str] = []
        page.on("console", self.on_console)
        page.on("pageerror", lambda error: self.note(f"not caught: {error}"))
        page.on("request", lambda one: self.on_request(one.url))

    def on_console(self, one: ConsoleMessage) -> None:
        if one.type in {"error", "warning"}:
            self.note(one.text)

    async def hide(self) -> None:
        """As a tab that is covered by another one: headless Chromium never hides a page."""
        await self.page.evaluate(
            "Object.defineProperty(document, 'hidden', {value: true, configurable: true});"
            "document.dispatchEvent(new Event('visibilitychange'))"
        )

    async def show(self) -> None:
        """Undo `hide`."""
        await self.page.evaluate(
            "delete document.hidden; document.dispatchEvent(new Event('visibilitychange'))"
        )

    def note(self, problem: str) -> None:
        self.problems.append(problem)

    def on_request(self, url: str) -> None:
        if not url.startswith((f"{self.address}/", "data:")):
            self.note(f"request to another host: {url}")


async def violations(page: Page) -> list[tuple[str, str, list[str]]]:
    """The rules that a page breaks, with elements, by axe-core, which the page has loaded."""
    found = await page.evaluate("axe.run()")
    assert len(found["passes"]) > 10, "hardly anything was checked"
    return [
        (one["id"], one["help"], [node["html"][:200] for node in one["nodes"][:3]])
        for one in found["violations"]
    ]


def untested_screens(paths: Iterable[str]) -> set[str]:
    """The console's screens that none of these addresses shows."""
    return set(SCREENS) - {_screen_of(path) for path in paths}


def _screen_of(path: str) -> str:
    parts = path.partition("?")[0].split("/")
    return next(
        screen
        for screen in SCREENS
        if len(names := screen.split("/")) == len(parts)
        and all(name in {part, f":{name[1:]}"} for name, part in zip(names, parts, strict=True))
    )


class Browser:
    """One Chromium for all tests of a session, and the event loop that controls it."""

    def __init__(self, chromium: Path) -> None:
        self._chromium = chromium
        self._runner = asyncio.Runner()
        self._context = async_playwright()
        self._browser: Chromium | None = None

    def __enter__(self) -> Self:
        self._runner.run(self._launch())
        return self

    async def _launch(self) -> None:
        started = await self._context.__aenter__()
        self._browser = await started.chromium.launch(
            executable_path=str(self._chromium), args=["--no-sandbox", "--disable-dev-shm-usage"]
        )

    def __exit__(self, *_: object) -> None:
        self._runner.run(self._close())
        self._runner.close()

    async def _close(self) -> None:
        assert self._browser is not None
        await self._browser.close()
        await self._context.__aexit__()

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Run the coroutine of a test."""
        self._runner.run(work)

    @asynccontextmanager
    async def visiting(
        self, address: str, path: str = "/", *, scheme: Literal["light", "dark"] = "light"
    ) -> AsyncIterator[Visit]:
        """A page of the console; it must have shown no error and requested nothing elsewhere."""
        async with self.tabs(address, 1, scheme=scheme) as (visit,):
            await visit.page.goto(f"{address}{path}")
            yield visit

    @asynccontextmanager
    async def tabs(
        self, address: str, count: int, *, scheme: Literal["light", "dark"] = "light"
    ) -> AsyncIterator[list[Visit]]:
        """Empty tabs of one browser window, which share connections; as `visiting` for each."""
        assert self._browser is not None
        context = await self._browser.new_context(
            color_scheme=scheme, viewport={"width": 1280, "height": 900}
        )
        try:
            context.set_default_timeout(WAIT_MS)
            visits = [Visit(await context.new_page(), address) for _ in range(count)]
            yield visits
        finally:
            await context.close()
        assert [problem for visit in visits for problem in visit.problems] == []
