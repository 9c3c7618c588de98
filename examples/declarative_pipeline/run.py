"""Run a declarative pipeline twice: the second run processes only what is new.

python run.py localhost:9092
"""

import asyncio
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from sparkraft.client.admin import Admin
from sparkraft.client.cluster import Cluster
from sparkraft.client.consumer import Consumer, ConsumerSettings
from sparkraft.client.producer import Producer
from sparkraft.client.values import NewTopic

SOURCE, TARGET = "words", "loud-words"
FOLDER = Path(__file__).parent
SPEC = """
name: loud
storage: {storage}
libraries:
  - glob:
      include: transformations/**
"""


async def create_topics(bootstrap: str) -> None:
    """Create both topics."""
    async with Cluster(bootstrap) as cluster:
        topics = [NewTopic(name=name, partitions=1) for name in (SOURCE, TARGET)]
        await Admin(cluster).create_topics(topics)


async def send(bootstrap: str, words: list[str]) -> None:
    """Write words to the source."""
    async with Cluster(bootstrap) as cluster, Producer(cluster) as producer:
        for word in words:
            await producer.send(SOURCE, word.encode())


async def received(bootstrap: str) -> list[str]:
    """All values that readers of committed records see in the target."""
    found: list[str] = []
    async with Cluster(bootstrap) as cluster:
        settings = ConsumerSettings(auto_offset_reset="earliest", read_committed=True)
        consumer = Consumer(cluster, settings)
        consumer.assign([(TARGET, 0)])
        while records := await consumer.poll(2_000):
            found += [(each.value or b"").decode() for each in records]
        await consumer.close()
    return found


def run_pipeline(bootstrap: str, project: Path) -> int:
    """`spark-pipelines run`; the exit code."""
    command = [str(Path(sys.executable).with_name("spark-pipelines")), "run"]
    log = (project / "spark.log").open("ab")
    environment = {**os.environ, "BOOTSTRAP": bootstrap, "PYSPARK_PYTHON": sys.executable}
    with log:
        done = subprocess.run(
            [*command, "--spec", str(project / "spark-pipeline.yml")],
            env=environment, stdout=log, stderr=log, check=False,
        )  # fmt: skip
    return done.returncode


def main(bootstrap: str) -> int:
    """Run the pipeline after the first words and after more, and print what it wrote."""
    asyncio.run(create_topics(bootstrap))
    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder)
        (project / "transformations").symlink_to(FOLDER / "transformations")
        storage = (project / "storage").resolve().as_uri()
        (project / "spark-pipeline.yml").write_text(SPEC.format(storage=storage))
        codes = []
        for words in (["one", "two", "three"], ["four", "five"]):
            asyncio.run(send(bootstrap, words))
            codes.append(run_pipeline(bootstrap, project))
            print(f"exit code {codes[-1]}: {', '.join(asyncio.run(received(bootstrap)))}")
        if any(codes):
            print((project / "spark.log").read_text()[-3000:], file=sys.stderr)
    return max(codes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
