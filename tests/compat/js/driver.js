// kafkajs under remote control: one JSON request a line on standard input, one answer a line on standard output.
const fs = require('node:fs')
const readline = require('node:readline')
const { Kafka, CompressionTypes, CompressionCodecs, logLevel, ConfigResourceTypes } = require('kafkajs')
const transactions = require('./transactions')
CompressionCodecs[CompressionTypes.Snappy] = require('kafkajs-snappy')

const open = { clientId: 'kafkajs', logLevel: logLevel.NOTHING }
const kafka = new Kafka({ ...open, brokers: process.argv[2].split(',') })
const admin = kafka.admin()
const compressions = { none: CompressionTypes.None, gzip: CompressionTypes.GZIP, snappy: CompressionTypes.Snappy }
const members = new Map()

const bytes = (hex) => (hex === null || hex === undefined ? null : Buffer.from(hex, 'hex'))
const hex = (buffer) => (buffer === null || buffer === undefined ? null : buffer.toString('hex'))

// The client of the open listener, or one of another listener: the authority to trust there, and what it shows.
function clientOf(security) {
  if (!security) return kafka
  const { bootstrap, ca, certificate, mechanism, user: username, password, token: value } = security
  const shown = certificate ? { key: fs.readFileSync(certificate), cert: fs.readFileSync(certificate) } : {}
  const login = mechanism === 'OAUTHBEARER' ? { oauthBearerProvider: async () => ({ value }) } : { username, password }
  const sasl = mechanism ? { mechanism: mechanism.toLowerCase(), ...login } : undefined
  return new Kafka({ ...open, brokers: [bootstrap], ssl: { ca: [fs.readFileSync(ca)], ...shown }, sasl, retry: { retries: 1 } })
}

function toMessage(message) {
  const headers = {}
  for (const [name, value] of message.headers || []) headers[name] = bytes(value)
  const timestamp = message.timestamp_ms === null ? undefined : String(message.timestamp_ms)
  const partition = message.partition === null ? undefined : message.partition
  return { key: bytes(message.key), value: bytes(message.value), headers, timestamp, partition }
}

function describe(topic, partition, message) {
  const headers = Object.entries(message.headers || {}).map(([name, value]) => [name, hex(value)])
  const { offset, timestamp } = message
  const place = { topic, partition, offset: Number(offset), timestamp_ms: Number(timestamp) }
  return { ...place, key: hex(message.key), value: hex(message.value), headers }
}

async function produce({ topic, messages, compression, idempotent, acks, security }) {
  const producer = clientOf(security).producer({ idempotent, maxInFlightRequests: 1, allowAutoTopicCreation: true })
  await producer.connect()
  try {
    const options = { acks: acks === 'all' ? -1 : Number(acks), compression: compressions[compression] }
    const sent = await producer.send({ topic, ...options, messages: messages.map(toMessage) })
    return sent.map(({ partition, baseOffset }) => [partition, baseOffset === undefined ? -1 : Number(baseOffset)])
  } finally {
    await producer.disconnect()
  }
}

async function read({ topic, count, committed, security }) {
  const group = `read-${topic}-${process.pid}-${Date.now()}`
  await join({ member: group, group, topics: [topic], readUncommitted: !committed, security })
  const member = members.get(group)
  const deadline = Date.now() + 30000
  while (member.records.length < count && Date.now() < deadline) await new Promise((done) => setTimeout(done, 20))
  await leave({ member: group })
  return member.records
}

async function join({ member, group, topics, readUncommitted = false, security }) {
  const times = { heartbeatInterval: 300, sessionTimeout: 10000, maxWaitTimeInMs: 100 }
  const options = { groupId: group, readUncommitted, ...times }
  const consumer = clientOf(security).consumer({ ...options, retry: { retries: 20 } })
  const state = { consumer, assignment: [], records: [], failure: null }
  members.set(member, state)
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
    state.assignment = Object.entries(payload.memberAssignment).flatMap(([t, ps]) => ps.map((p) => [t, p]))
  })
  consumer.on(consumer.events.CRASH, ({ payload }) => {
    if (!payload.restart) state.failure = String(payload.error)
  })
  await consumer.connect()
  for (const topic of topics) await consumer.subscribe({ topic, fromBeginning: true })
  await consumer.run({
    autoCommit: false,
    eachMessage: async ({ topic, partition, message }) => state.records.push(describe(topic, partition, message)),
  })
}

async function commit({ member }) {
  const { consumer, records, assignment } = members.get(member)
  const next = new Map()
  for (const { topic, partition, offset } of records) next.set(JSON.stringify([topic, partition]), offset + 1)
  const held = new Set(assignment.map((place) => JSON.stringify(place)))
  const offsets = [...next].filter(([place]) => held.has(place))
  await consumer.commitOffsets(
    offsets.map(([place, offset]) => {
      const [topic, partition] = JSON.parse(place)
      return { topic, partition, offset: String(offset) }
    }),
  )
}

async function leave({ member }) {
  await members.get(member).consumer.disconnect()
  members.delete(member)
}

async function topics() {
  const metadata = await admin.fetchTopicMetadata()
  return Object.fromEntries(metadata.topics.map(({ name, partitions }) => [name, partitions.length]))
}

async function topicConfigs({ topic }) {
  const resources = [{ type: ConfigResourceTypes.TOPIC, name: topic }]
  const { resources: described } = await admin.describeConfigs({ resources, includeSynonyms: false })
  return Object.fromEntries(described[0].configEntries.map(({ configName, configValue }) => [configName, configValue]))
}

const operations = {
  ...transactions(kafka, { toMessage, join, leave, members }),
  produce,
  read,
  join,
  commit,
  leave,
  topics,
  topic_configs: topicConfigs,
  state: async ({ member }) => {
    const { assignment, records, failure } = members.get(member)
    return { assignment, records, failure }
  },
  committed: async ({ group, topic }) => {
    const [{ partitions }] = await admin.fetchOffsets({ groupId: group, topics: [topic] })
    const known = partitions.filter(({ offset }) => offset !== '-1')
    return Object.fromEntries(known.map(({ partition, offset }) => [partition, Number(offset)]))
  },
  create_topic: async ({ topic, partitions, configs }) => {
    const configEntries = Object.entries(configs || {}).map(([name, value]) => ({ name, value }))
    const wanted = { topic, numPartitions: partitions, configEntries }
    const created = await admin.createTopics({ waitForLeaders: true, topics: [wanted] })
    if (!created) throw new Error(`topic ${topic} already exists`)
  },
  create_partitions: ({ topic, partitions }) =>
    admin.createPartitions({ topicPartitions: [{ topic, count: partitions }] }),
  alter_topic_config: ({ topic, name, value }) => {
    const resource = { type: ConfigResourceTypes.TOPIC, name: topic, configEntries: [{ name, value }] }
    return admin.alterConfigs({ validateOnly: false, resources: [resource] })
  },
  delete_topic: ({ topic }) => admin.deleteTopics({ topics: [topic], timeout: 10000 }),
  offsets_for_time: async ({ topic, timestamp_ms }) => {
    const offsets = await admin.fetchTopicOffsetsByTimestamp(topic, timestamp_ms)
    return Object.fromEntries(offsets.map(({ partition, offset }) => [partition, Number(offset)]))
  },
}

async function answer(line) {
  const request = JSON.parse(line)
  try {
    return { result: (await operations[request.op](request)) ?? null }
  } catch (error) {
    return { error: `${error.name}: ${error.message}` }
  }
}

async function main() {
  await admin.connect()
  for await (const line of readline.createInterface({ input: process.stdin })) {
    process.stdout.write(JSON.stringify(await answer(line)) + '\n')
  }
  process.exit(0)
}

main()
