// A transactional producer of one of the two libraries: aborts one record, commits another.
//   node transactions.js kafkajs|platformatic BOOTSTRAP TOPIC
const [, , library, bootstrap, topic] = process.argv;

async function kafkajs() {
  const { Kafka, logLevel } = require("kafkajs");
  const kafka = new Kafka({ clientId: "txn", brokers: [bootstrap], logLevel: logLevel.NOTHING });
  const producer = kafka.producer({ transactionalId: "js", maxInFlightRequests: 1, idempotent: true });
  await producer.connect();
  for (const end of ["aborted", "committed"]) {
    const transaction = await producer.transaction();
    await transaction.send({ topic, messages: [{ value: end }] });
    await (end === "aborted" ? transaction.abort() : transaction.commit());
  }
  await producer.disconnect();
}

async function platformatic() {
  const { Producer } = require("@platformatic/kafka");
  const producer = new Producer({
    clientId: "txn",
    bootstrapBrokers: [bootstrap],
    transactionalId: "pjs",
    idempotent: true,
  });
  for (const end of ["aborted", "committed"]) {
    const transaction = await producer.beginTransaction();
    await transaction.send({ messages: [{ topic, value: Buffer.from(end) }], acks: -1 });
    await (end === "aborted" ? transaction.abort() : transaction.commit());
  }
  await producer.close();
}

(library === "kafkajs" ? kafkajs() : platformatic())
  .then(() => process.exit(0))
  .catch((error) => {
    console.log("failed:", error.name, error.message, error.cause || error.errors);
    process.exit(1);
  });
