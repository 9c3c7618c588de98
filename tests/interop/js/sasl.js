// kafkajs as a client that logs in; prints the value that it has written and read as JSON.
//   node sasl.js BOOTSTRAP TOPIC      on standard input {mechanism, username, password, token, ca, cert}
// Without a mechanism, `cert`, a certificate and its private key, is the login.
const { Kafka, logLevel } = require("kafkajs");

const [, , bootstrap, topic] = process.argv;
const login = JSON.parse(require("fs").readFileSync(0, "utf8"));

const sasl = login.mechanism ? { mechanism: login.mechanism.toLowerCase() } : undefined;
if (login.token) sasl.oauthBearerProvider = async () => ({ value: login.token });
else if (sasl) Object.assign(sasl, { username: login.username, password: login.password });

const kafka = new Kafka({
  clientId: "sasl",
  brokers: [bootstrap],
  ssl: login.ca ? { ca: [login.ca], cert: login.cert, key: login.cert } : undefined,
  sasl,
  logLevel: logLevel.ERROR,
});

async function main() {
  const admin = kafka.admin();
  await admin.connect();
  await admin.createTopics({ topics: [{ topic, numPartitions: 1, replicationFactor: 1 }] });
  await admin.disconnect();
  const producer = kafka.producer();
  await producer.connect();
  await producer.send({ topic, messages: [{ value: "value" }] });
  await producer.disconnect();
  const consumer = kafka.consumer({ groupId: topic });
  await consumer.connect();
  await consumer.subscribe({ topics: [topic], fromBeginning: true });
  const value = await new Promise((resolve, reject) => {
    setTimeout(() => reject(new Error("no record")), 90000).unref();
    consumer
      .run({ eachMessage: async ({ message }) => resolve(message.value.toString()) })
      .catch(reject);
  });
  await consumer.disconnect();
  console.log(JSON.stringify(value));
}

main()
  .then(() => process.exit(0))
  .catch((error) => {
    console.error(error);
    process.exit(1);
  });
