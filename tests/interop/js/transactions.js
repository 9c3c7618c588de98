// A transactional producer of one of the two libraries; prints how it was refused.
//   node transactions.js kafkajs|platformatic BOOTSTRAP
const [, , library, bootstrap] = process.argv;

async function kafkajs() {
  const { Kafka, logLevel } = require("kafkajs");
  const kafka = new Kafka({ clientId: "txn", brokers: [bootstrap], logLevel: logLevel.NOTHING });
  const producer = kafka.producer({ transactionalId: "js", maxInFlightRequests: 1, idempotent: true });
  await producer.connect();
  await producer.transaction();
}

async function platformatic() {
  const { Producer } = require("@platformatic/kafka");
  const producer = new Producer({
    clientId: "txn",
    bootstrapBrokers: [bootstrap],
    transactionalId: "js",
    idempotent: true,
  });
  await producer.beginTransaction();
}

const deepest = (error) => error.cause || (error.errors && error.errors[0]) || error;

(library === "kafkajs" ? kafkajs() : platformatic())
  .then(() => process.exit(1))
  .catch((error) => {
    console.log("refused:", error.name, error.message, deepest(error).message);
    process.exit(0);
  });
