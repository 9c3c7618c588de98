"""What the operating system says of a process, and the C programs that are the yardstick."""

import json
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.ports import accepts, lasting_ports, wait_until

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / ".cache" / "bench"
_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """User and system time that process `pid` has used so far, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def rss_mib(pid: int) -> float:
    """Memory of process `pid` that is resident now, in MiB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise ProcessLookupError(pid)


def compiled(name: str) -> Path:
    """The C program `name`, built if need be; `RuntimeError` where there is no compiler."""
    source, program = ROOT / "benchmarks" / "c" / f"{name}.c", BUILD / name
    if not program.exists() or program.stat().st_mtime < source.stat().st_mtime:
        compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
        if compiler is None:
            raise RuntimeError("the benchmarks need a C compiler (cc) for their yardstick")
        BUILD.mkdir(parents=True, exist_ok=True)
        command = [compiler, "-O2", "-pthread", "-o", str(program), str(source)]
        subprocess.run(command, check=True)
    return program


@contextmanager
def null_server(answer: bytes, data: Path | None = None) -> Iterator[tuple[int, int]]:
    """The C server that answers every request with `answer` (a whole frame); (port, pid).

    Where there is `data`, large answers are first read from that file, round and round.
    """
    path = BUILD / "answer.bin"
    program = compiled("null_server")
    path.write_bytes(answer)
    (port,) = lasting_ports(1)
    more = [] if data is None else [str(data)]
    process = subprocess.Popen([str(program), str(port), str(path), *more])
    try:
        wait_until(lambda: accepts(port), "the C server listens", 10)
        yield port, process.pid
    finally:
        process.kill()
        process.wait()


def load(
    port: int, pid: int, frames: bytes, *, connections: int, in_flight: int, seconds: float
) -> dict[str, Any]:
    """Send `frames` (whole frames) round and round; what came of it, with the server's CPU."""
    path = BUILD / "requests.bin"
    program = compiled("load")
    path.write_bytes(frames)
    before = cpu_seconds(pid)
    done = subprocess.run(
        [str(program), str(port), str(path), str(connections), str(in_flight), str(seconds)],
        capture_output=True, text=True, check=False, timeout=seconds + 60,
    )  # fmt: skip
    if done.returncode != 0:
        raise RuntimeError(f"the load generator failed: {done.stderr}")
    result: dict[str, Any] = json.loads(done.stdout)
    result["cpu_us"] = (cpu_seconds(pid) - before) / result["requests"] * 1e6
    result["mb_out"] = result["bytes_out"] / result["seconds"] / 1e6
    result["mb_in"] = result["bytes_in"] / result["seconds"] / 1e6
    result["per_second"] = result["requests"] / result["seconds"]
    return result


def has_files(log_dir: Path, topic: str) -> bool:
    """Whether bytes of a topic are left in `log_dir`, where its folders may be going."""
    try:
        return any(log_dir.glob(f"{topic}-*/*.log*"))
    except FileNotFoundError:  # a folder went while it was looked into
        return True


def framed(body: bytes) -> bytes:
    """`body` with its length in front."""
    return struct.pack(">i", len(body)) + body
