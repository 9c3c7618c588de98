"""Kill the pipeline twice while it works, then count what read_committed consumers see.

python run.py localhost:9092
"""

import asyncio
import os
import signal
import sys
from collections import Counter
from pathlib import Path

from sparkraft.client.admin import Admin
from sparkraft.client.cluster import Cluster
from sparkraft.client.consumer import Consumer, ConsumerSettings
from sparkraft.client.producer import Producer
from sparkraft.client.values import NewTopic

SOURCE, TARGET = "numbers", "numbers-doubled"
RECORDS = 4_000
KILLS = 2
PARTITIONS = 3
WAIT_SECONDS_MAX = 280
FILE = Path(__file__).with_name("doubled.toml")


async def prepare(cluster: Cluster) -> None:
    """Create both topics and write the numbers below RECORDS."""
    topics = [NewTopic(name=name, partitions=PARTITIONS) for name in (SOURCE, TARGET)]
    for name, outcome in (await Admin(cluster).create_topics(topics)).items():
        if isinstance(outcome, Exception):
            raise SystemExit(f"{name}: {outcome}")
    async with Producer(cluster) as producer:
        for number in range(RECORDS):
            await producer.send(SOURCE, str(number).encode(), key=str(number).encode())


async def start(bootstrap: str) -> asyncio.subprocess.Process:
    """Start the pipeline with Spark, in a process group of its own."""
    command = ("-m", "sparkraft.cli.main", "pipeline", "run", FILE, "--master", "local[2]")
    return await asyncio.create_subprocess_exec(
        sys.executable, *command, "--set", f"bootstrap={bootstrap}",
        start_new_session=True, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip


async def kill(pipeline: asyncio.subprocess.Process) -> None:
    """kill -9 the driver, its JVM and all workers at once."""
    os.killpg(pipeline.pid, signal.SIGKILL)
    await pipeline.wait()


async def run(bootstrap: str) -> Counter[int]:
    """Kill and restart the pipeline each time another part of the output is visible."""
    seen: Counter[int] = Counter()
    async with Cluster(bootstrap) as cluster:
        await prepare(cluster)
        settings = ConsumerSettings(auto_offset_reset="earliest", read_committed=True)
        consumer = Consumer(cluster, settings)
        consumer.assign([(TARGET, index) for index in range(PARTITIONS)])
        pipeline = await start(bootstrap)
        kills = 0
        try:
            async with asyncio.timeout(WAIT_SECONDS_MAX):
                while seen.total() < RECORDS:
                    seen.update(int(each.value or b"0") for each in await consumer.poll(100))
                    if kills < KILLS and seen.total() >= (kills + 1) * RECORDS // (KILLS + 2):
                        await kill(pipeline)
                        kills += 1
                        pipeline = await start(bootstrap)
            # Long enough for one more batch, if there were anything left to write twice.
            seen.update(int(each.value or b"0") for each in await consumer.poll(2_000))
        finally:
            await kill(pipeline)
        await consumer.close()
    print(f"{RECORDS} records in, the pipeline was killed {kills} times")
    return seen


def main(bootstrap: str) -> int:
    """Run, and print whether each record came out once."""
    seen = asyncio.run(run(bootstrap))
    wanted = Counter(2 * number for number in range(RECORDS))
    print(f"{seen.total()} records out, {len(seen & wanted)} of them right, each once: "
          f"{seen == wanted}")  # fmt: skip
    return int(seen != wanted)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
