// kafkajs beside producing and consuming; prints JSON on its last line.
//   node kafkajs_behaviour.js seek BOOTSTRAP TOPIC TIMESTAMP        first value from there on, or null
//   node kafkajs_behaviour.js resume BOOTSTRAP TOPIC GROUP COUNT    values; commits behind them
//   node kafkajs_behaviour.js admin BOOTSTRAP TOPIC                 what an admin saw
const { Kafka, ConfigResourceTypes, logLevel } = require("kafkajs");

const [, , command, bootstrap, topic, ...rest] = process.argv;
const kafka = new Kafka({ clientId: "behaviour", brokers: [bootstrap], logLevel: logLevel.ERROR });

async function read(groupId, count, onRun = () => {}) {
  const seen = [];
  const consumer = kafka.consumer({ groupId });
  await consumer.connect();
  await consumer.subscribe({ topics: [topic], fromBeginning: true });
  await new Promise((resolve, reject) => {
    setTimeout(() => reject(new Error(`only ${seen.length} of ${count} records`)), 90000).unref();
    consumer
      .run({
        autoCommit: false,
        eachMessage: async ({ partition, message }) => {
          if (seen.length >= count) return;
          seen.push(message.value.toString());
          if (seen.length < count) return;
          const offset = String(BigInt(message.offset) + 1n);
          await consumer.commitOffsets([{ topic, partition, offset }]);
          resolve();
        },
      })
      .catch(reject);
    onRun(consumer);
  });
  await consumer.disconnect();
  return seen;
}

async function seek(admin) {
  const places = await admin.fetchTopicOffsetsByTimestamp(topic, Number(rest[0]));
  const ends = await admin.fetchTopicOffsets(topic);
  const offset = places.find((place) => place.partition === 0).offset;
  // Behind the last time kafkajs gives the end.
  if (offset === ends.find((end) => end.partition === 0).high) return null;
  const seen = await read(`seek-${Date.now()}`, 1, (consumer) =>
    consumer.seek({ topic, partition: 0, offset })
  );
  return seen[0];
}

async function retention(admin) {
  const described = await admin.describeConfigs({
    includeSynonyms: false,
    resources: [{ type: ConfigResourceTypes.TOPIC, name: topic, configNames: ["retention.ms"] }],
  });
  return described.resources[0].configEntries[0].configValue;
}

async function partitions(admin) {
  return (await admin.fetchTopicMetadata({ topics: [topic] })).topics[0].partitions.length;
}

async function administer(admin) {
  const report = {};
  const configEntries = (value) => [{ name: "retention.ms", value }];
  await admin.createTopics({
    topics: [{ topic, numPartitions: 3, replicationFactor: 1, configEntries: configEntries("86400000") }],
  });
  report.listed = (await admin.listTopics()).includes(topic);
  report.partitions = await partitions(admin);
  report.retention = await retention(admin);
  await admin.alterConfigs({
    validateOnly: false,
    resources: [
      { type: ConfigResourceTypes.TOPIC, name: topic, configEntries: configEntries("3600000") },
    ],
  });
  report["retention altered"] = await retention(admin);
  await admin.createPartitions({ topicPartitions: [{ topic, count: 5 }] });
  report["partitions grown"] = await partitions(admin);
  const producer = kafka.producer();
  await producer.connect();
  const messages = [...Array(10).keys()].map((n) => ({ partition: 0, value: String(n) }));
  await producer.send({ topic, messages });
  await producer.disconnect();
  await admin.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset: "4" }] });
  const first = (await admin.fetchTopicOffsets(topic)).find((place) => place.partition === 0);
  report.start = Number(first.low);
  report.end = Number(first.high);
  const groupId = `group of ${topic}`;
  await admin.setOffsets({ groupId, topic, partitions: [{ partition: 0, offset: "7" }] });
  const listed = async () => (await admin.listGroups()).groups.map((group) => group.groupId);
  report["group listed"] = (await listed()).includes(groupId);
  report["group state"] = (await admin.describeGroups([groupId])).groups[0].state.toLowerCase();
  const committed = await admin.fetchOffsets({ groupId, topics: [topic] });
  const place = committed[0].partitions.find(({ partition }) => partition === 0);
  report.committed = Number(place.offset);
  await admin.deleteGroups([groupId]);
  report["group deleted"] = !(await listed()).includes(groupId);
  await admin.deleteTopics({ topics: [topic] });
  report["topic deleted"] = !(await admin.listTopics()).includes(topic);
  return report;
}

async function withAdmin(work) {
  const admin = kafka.admin();
  await admin.connect();
  try {
    return await work(admin);
  } finally {
    await admin.disconnect();
  }
}

const commands = {
  seek: () => withAdmin(seek),
  resume: () => read(rest[0], Number(rest[1])),
  admin: () => withAdmin(administer),
};

commands[command]()
  .then((found) => {
    console.log(JSON.stringify(found));
    process.exit(0);
  })
  .catch((error) => {
    console.error(error);
    process.exit(1);
  });
