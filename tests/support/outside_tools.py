"""Other people's tools, fetched by package name into `.cache` and never committed.

Each function gives a path, or the reason why there is none; tests skip with that reason.
"""

import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

CACHE = Path(__file__).resolve().parents[2] / ".cache"
_JS = Path(__file__).resolve().parents[1] / "interop" / "js"


@dataclass(frozen=True, slots=True)
class Missing:
    """A tool that can't be had here, and why."""

    reason: str


@contextmanager
def fetching(folder: Path) -> Iterator[None]:
    """Let one process at a time look what is in `folder`, and fetch what is not."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _run(command: list[str], *, cwd: Path, seconds: float = 300) -> str | None:
    """Run a package client; the end of what it said if it failed."""
    try:
        done = subprocess.run(
            command, cwd=cwd, capture_output=True, text=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired:
        return f"{command[0]} took more than {seconds:g} s"
    return None if done.returncode == 0 else (done.stderr or done.stdout)[-300:]


@fetching(CACHE / "js")
def javascript_clients() -> Path | Missing:
    """The folder whose `node_modules` holds kafkajs and @platformatic/kafka."""
    if not shutil.which("node") or not shutil.which("npm"):
        return Missing("needs Node.js and npm on the PATH")
    folder = CACHE / "js"
    wanted = (_JS / "package.json").read_text()
    stamp = folder / "installed.json"
    if not stamp.exists() or stamp.read_text() != wanted:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "package.json").write_text(wanted)
        failed = _run(
            ["npm", "install", "--no-package-lock", "--ignore-scripts", "--no-audit", "--no-fund"],
            cwd=folder,
        )
        if failed:
            return Missing(f"npm could not install the JavaScript clients: {failed}")
        stamp.write_text(wanted)
    for script in _JS.glob("*.js"):
        _copy(script, folder / script.name)
    return folder


def _copy(source: Path, target: Path) -> None:
    """At once and only where it differs: another process of tests may just be running it."""
    wanted = source.read_bytes()
    if not target.exists() or target.read_bytes() != wanted:
        fresh = target.with_name(f"{target.name}.{os.getpid()}")
        fresh.write_bytes(wanted)
        fresh.replace(target)


@fetching(CACHE / "kcat")
def kcat() -> Path | Missing:
    """A `kcat`: the machine's, or Debian's package unpacked without installing it."""
    if found := shutil.which("kcat"):
        return Path(found)
    root = CACHE / "kcat"
    wrapper = root / "kcat"
    if wrapper.exists():
        return wrapper
    if not shutil.which("apt-get") or not shutil.which("dpkg"):
        return Missing("needs kcat, or apt-get and dpkg to unpack it")
    root.mkdir(parents=True, exist_ok=True)
    packages = ["kcat", "librdkafka1", "libyajl2"]
    failed = _run(["apt-get", "download", *packages], cwd=root)
    if failed and not _run(["apt-get", "update", "-qq"], cwd=root):
        failed = _run(["apt-get", "download", *packages], cwd=root)
    if failed:
        return Missing(f"apt-get could not download kcat: {failed}")
    for package in sorted(root.glob("*.deb")):
        if failed := _run(["dpkg", "-x", package.name, "unpacked"], cwd=root):
            return Missing(f"dpkg could not unpack {package.name}: {failed}")
    libraries = sorted({str(found.parent) for found in (root / "unpacked").rglob("*.so*")})
    binary = root / "unpacked" / "usr" / "bin" / "kcat"
    wrapper.write_text(f'#!/bin/sh\nLD_LIBRARY_PATH={":".join(libraries)} exec {binary} "$@"\n')
    wrapper.chmod(0o755)
    return wrapper


@fetching(CACHE / "chromium")
def chromium() -> Path | Missing:
    """Chromium: the machine's, or Debian's package, which is installed if this user may."""
    if found := shutil.which("chromium") or shutil.which("chromium-browser"):
        return Path(found)
    if not shutil.which("apt-get") or os.geteuid() != 0:
        return Missing("needs Chromium on the PATH, or root and apt-get to install it")
    install = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", "chromium"]
    failed = _run(install, cwd=CACHE)
    if failed and not _run(["apt-get", "update", "-qq"], cwd=CACHE):
        failed = _run(install, cwd=CACHE)
    if failed:
        return Missing(f"apt-get could not install chromium: {failed}")
    found = shutil.which("chromium")
    return Path(found) if found else Missing("the package has no chromium on the PATH")


@fetching(CACHE / "axe")
def axe_core() -> Path | Missing:
    """The script of axe-core, which checks the accessibility of a page."""
    if not shutil.which("npm"):
        return Missing("needs npm on the PATH")
    folder = CACHE / "axe"
    script = folder / "node_modules" / "axe-core" / "axe.min.js"
    if not script.exists():
        folder.mkdir(parents=True, exist_ok=True)
        install = ["npm", "install", "--no-package-lock", "--ignore-scripts", "--no-audit"]
        failed = _run([*install, "--no-fund", "--prefix", str(folder), "axe-core@4"], cwd=folder)
        if failed:
            return Missing(f"npm could not install axe-core: {failed}")
    return script
