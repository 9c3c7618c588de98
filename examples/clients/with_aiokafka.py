"""Produce and consume three greetings with aiokafka.

python with_aiokafka.py localhost:9092
"""

import asyncio
import sys

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

TOPIC = "greetings-aiokafka"
GREETINGS = {"en": "hello", "fr": "bonjour", "es": "hola"}
WAIT_SECONDS_MAX = 30


async def create_topic(bootstrap: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    await admin.create_topics([NewTopic(TOPIC, num_partitions=3, replication_factor=1)])
    await admin.close()


async def produce(bootstrap: str) -> None:
    async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
        for language, greeting in GREETINGS.items():
            await producer.send_and_wait(TOPIC, key=language.encode(), value=greeting.encode())


async def consume(bootstrap: str) -> dict[str, str]:
    consumer = AIOKafkaConsumer(
        TOPIC, bootstrap_servers=bootstrap, group_id="readers", auto_offset_reset="earliest"
    )
    found: dict[str, str] = {}
    async with consumer, asyncio.timeout(WAIT_SECONDS_MAX):
        async for record in consumer:
            found[record.key.decode()] = record.value.decode()
            if found.keys() == GREETINGS.keys():
                break
    return found


async def main(bootstrap: str) -> None:
    await create_topic(bootstrap)
    await produce(bootstrap)
    for language, greeting in sorted((await consume(bootstrap)).items()):
        print(f"{language}: {greeting}")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
