"""Produce and consume three greetings with kafka-python.

python with_kafka_python.py localhost:9092
"""

import sys

from kafka import KafkaConsumer, KafkaProducer
from kafka.admin import KafkaAdminClient, NewTopic

TOPIC = "greetings-kafka-python"
GREETINGS = {"en": "hello", "fr": "bonjour", "es": "hola"}
WAIT_MS_MAX = 30_000


def create_topic(bootstrap: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    admin.create_topics([NewTopic(TOPIC, num_partitions=3, replication_factor=1)])
    admin.close()


def produce(bootstrap: str) -> None:
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    for language, greeting in GREETINGS.items():
        producer.send(TOPIC, key=language.encode(), value=greeting.encode())
    producer.flush()
    producer.close()


def consume(bootstrap: str) -> dict[str, str]:
    consumer = KafkaConsumer(
        TOPIC,
        bootstrap_servers=bootstrap,
        group_id="readers",
        auto_offset_reset="earliest",
        consumer_timeout_ms=WAIT_MS_MAX,
    )
    found: dict[str, str] = {}
    for record in consumer:
        found[record.key.decode()] = record.value.decode()
        if found.keys() == GREETINGS.keys():
            break
    consumer.close()  # leaves the group and commits
    return found


if __name__ == "__main__":
    create_topic(sys.argv[1])
    produce(sys.argv[1])
    for language, greeting in sorted(consume(sys.argv[1]).items()):
        print(f"{language}: {greeting}")
