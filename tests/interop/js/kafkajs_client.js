// kafkajs as one more client of the matrix.
//   node kafkajs_client.js produce BOOTSTRAP TOPIC CODEC   records as JSON on standard input
//   node kafkajs_client.js consume BOOTSTRAP TOPIC COUNT   prints records as JSON
const { Kafka, CompressionTypes, logLevel } = require("kafkajs");

const [, , command, bootstrap, topic, argument] = process.argv;
const kafka = new Kafka({ clientId: "matrix", brokers: [bootstrap], logLevel: logLevel.ERROR });

const text = (buffer) => (buffer === null || buffer === undefined ? null : buffer.toString("utf8"));

async function produce() {
  const records = JSON.parse(require("fs").readFileSync(0, "utf8"));
  const producer = kafka.producer();
  await producer.connect();
  await producer.send({
    topic,
    compression: argument === "gzip" ? CompressionTypes.GZIP : CompressionTypes.None,
    messages: records.map((record) => ({
      key: record.key,
      value: record.value,
      headers: Object.fromEntries(record.headers),
    })),
  });
  await producer.disconnect();
}

async function consume() {
  const wanted = Number(argument);
  const seen = [];
  const consumer = kafka.consumer({ groupId: `matrix-${Date.now()}` });
  await consumer.connect();
  await consumer.subscribe({ topics: [topic], fromBeginning: true });
  await new Promise((resolve, reject) => {
    setTimeout(() => reject(new Error(`only ${seen.length} of ${wanted} records`)), 90000).unref();
    consumer
      .run({
        eachMessage: async ({ message }) => {
          seen.push({
            key: text(message.key),
            value: text(message.value),
            headers: Object.entries(message.headers || {}).map(([k, v]) => [k, text(v)]),
          });
          if (seen.length >= wanted) resolve();
        },
      })
      .catch(reject);
  });
  await consumer.disconnect();
  console.log(JSON.stringify(seen));
}

(command === "produce" ? produce() : consume()).catch((error) => {
  console.error(error);
  process.exit(1);
});
