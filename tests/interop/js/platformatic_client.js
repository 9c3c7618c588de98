// @platformatic/kafka as one more client of the matrix; its decoders are strict.
//   node platformatic_client.js produce BOOTSTRAP TOPIC CODEC   records as JSON on standard input
//   node platformatic_client.js consume BOOTSTRAP TOPIC COUNT   prints records as JSON
const { Producer, Consumer, stringSerializers, stringDeserializers } = require("@platformatic/kafka");

const [, , command, bootstrap, topic, argument] = process.argv;
const base = { clientId: "matrix", bootstrapBrokers: [bootstrap] };
const orNull = (value) => (value === undefined ? null : value);

async function produce() {
  const records = JSON.parse(require("fs").readFileSync(0, "utf8"));
  const producer = new Producer({ ...base, serializers: stringSerializers, compression: argument });
  await producer.send({
    messages: records.map((record) => ({
      topic,
      key: record.key === null ? undefined : record.key,
      value: record.value === null ? undefined : record.value,
      headers: Object.fromEntries(record.headers),
    })),
    acks: -1,
  });
  await producer.close();
}

async function consume() {
  const wanted = Number(argument);
  const seen = [];
  const consumer = new Consumer({
    ...base,
    groupId: `matrix-${Date.now()}`,
    deserializers: stringDeserializers,
  });
  const stream = await consumer.consume({ topics: [topic], mode: "earliest", autocommit: true });
  const late = setTimeout(() => {
    console.error(`only ${seen.length} of ${wanted} records`);
    process.exit(1);
  }, 90000);
  for await (const message of stream) {
    seen.push({
      key: orNull(message.key),
      value: orNull(message.value),
      headers: [...(message.headers || new Map())],
    });
    if (seen.length >= wanted) break;
  }
  clearTimeout(late);
  console.log(JSON.stringify(seen));
  await consumer.close(true);
  process.exit(0);
}

(command === "produce" ? produce() : consume()).catch((error) => {
  console.error(error);
  process.exit(1);
});
