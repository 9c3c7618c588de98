"""Topics as they enter the context; those without an id get one (KIP-516).

A topic that was created with inter.broker.protocol.version below 2.8 has none. As Kafka 3.9's
`processTopicIds`, the controller writes one into its znode when it reads the topic. A topic whose
write fails has no id until the next controller reads it.
"""

from collections.abc import Mapping

from sparkraft.zookeeper.controller import store, znodes
from sparkraft.zookeeper.controller.active import Active
from sparkraft.zookeeper.controller.steps import Steps
from sparkraft.zookeeper.controller.znodes import Topic
from sparkraft.zookeeper.errors import ZooKeeperError
from sparkraft.zookeeper.requests import SetData


def add_topics(active: Active, found: Mapping[str, Topic]) -> Steps[None]:
    """Put assignments and ids of topics into the context."""
    context = active.context
    missing = {}
    for name, topic in found.items():
        context.assignments[name] = dict(topic.assignments)
        if topic.id is not None:
            context.topic_ids[name] = topic.id
        elif active.new_topic_id is not None:
            missing[name] = active.new_topic_id()
    operations = [
        SetData(
            path=znodes.topic_path(name),
            data=znodes.encode_topic(found[name]._replace(id=topic_id)),
        )
        for name, topic_id in missing.items()
    ]
    results = yield from store.write(operations, context.epoch_version)
    for (name, topic_id), result in zip(missing.items(), results, strict=True):
        if isinstance(result, ZooKeeperError):
            active.journal.add("failed transition", f"{name} gets no id: {result}", topic=name)
        else:
            context.topic_ids[name] = topic_id
            active.journal.add("topics", f"{name} has the new id {topic_id}", topic=name)
