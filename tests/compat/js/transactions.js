// Transactions of kafkajs: operations of the driver.
module.exports = (kafka, { toMessage, join, leave, members }) => {
  const writers = new Map()

  async function open({ writer, transactional_id }) {
    const producer = kafka.producer({ transactionalId: transactional_id, maxInFlightRequests: 1, idempotent: true })
    await producer.connect()
    // The epoch rises with the first transaction.
    writers.set(writer, { producer, transaction: await producer.transaction() })
  }

  async function write({ writer, topic, messages }) {
    const state = writers.get(writer)
    state.transaction ??= await state.producer.transaction()
    await state.transaction.send({ topic, messages: messages.map(toMessage) })
  }

  async function writeOffset({ writer, group, topic, offset }) {
    const topics = [{ topic, partitions: [{ partition: 0, offset: String(offset) }] }]
    await writers.get(writer).transaction.sendOffsets({ consumerGroupId: group, topics })
  }

  async function end({ writer, commit }) {
    const { transaction } = writers.get(writer)
    writers.get(writer).transaction = null
    await (commit ? transaction.commit() : transaction.abort())
  }

  async function close({ writer }) {
    await writers.get(writer).producer.disconnect()
    writers.delete(writer)
  }

  function offsetsBehind(records) {
    const next = new Map()
    for (const { partition, offset } of records) next.set(partition, String(offset + 1))
    return [...next].map(([partition, offset]) => ({ partition, offset }))
  }

  async function copy({ transactional_id, group, topic, target, count, commit }) {
    const writer = `copy ${transactional_id}`
    await open({ writer, transactional_id })
    await join({ member: writer, group, topics: [topic] })
    const { records } = members.get(writer)
    while (records.length < count) await new Promise((done) => setTimeout(done, 20))
    const copies = records.map(({ value, partition }) => ({ value, partition, key: null, timestamp_ms: null }))
    await write({ writer, topic: target, messages: copies })
    const topics = [{ topic, partitions: offsetsBehind(records) }]
    await writers.get(writer).transaction.sendOffsets({ consumerGroupId: group, topics })
    await end({ writer, commit })
    await leave({ member: writer })
    await close({ writer })
  }

  // Programs await what is sent.
  return { open_writer: open, write, send: write, write_offset: writeOffset, end, close_writer: close, copy }
}
