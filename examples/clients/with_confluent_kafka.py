"""Produce and consume three greetings with confluent-kafka.

python with_confluent_kafka.py localhost:9092
"""

import sys

from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

TOPIC = "greetings-confluent"
GREETINGS = {"en": "hello", "fr": "bonjour", "es": "hola"}
POLLS_MAX = 30


def create_topic(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    created = admin.create_topics([NewTopic(TOPIC, num_partitions=3, replication_factor=1)])
    created[TOPIC].result()


def produce(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for language, greeting in GREETINGS.items():
        producer.produce(TOPIC, key=language, value=greeting)
    producer.flush()


def consume(bootstrap: str) -> dict[str, str]:
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "readers",
        "auto.offset.reset": "earliest",
    }
    consumer = Consumer(settings)
    consumer.subscribe([TOPIC])
    found: dict[str, str] = {}
    for _ in range(POLLS_MAX):
        message = consumer.poll(1.0)
        if message is None:
            continue
        if message.error():
            raise KafkaException(message.error())
        found[message.key().decode()] = message.value().decode()
        if found.keys() == GREETINGS.keys():
            break
    consumer.close()  # leaves the group and commits
    return found


if __name__ == "__main__":
    create_topic(sys.argv[1])
    produce(sys.argv[1])
    for language, greeting in sorted(consume(sys.argv[1]).items()):
        print(f"{language}: {greeting}")
