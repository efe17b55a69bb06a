package compat;

import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;

/**
 * A program that copies a topic, each record in a transaction with the group's offsets:
 * {@code BOOTSTRAP ID SOURCE TARGET PROTOCOL}, where the protocol of the group is {@code classic} or {@code consumer}.
 * It aborts and reads again what it may not commit, and ends with status 1 where the abort fails, too.
 */
public final class Copier {
    private final KafkaProducer<byte[], byte[]> producer;
    private final KafkaConsumer<byte[], byte[]> consumer;
    private final String target;

    private Copier(String bootstrap, String name, String source, String target, String protocol) {
        this.target = target;
        producer = new KafkaProducer<>(properties(
            "bootstrap.servers", bootstrap, "transactional.id", name, "key.serializer", Records.BYTES_IN,
            "value.serializer", Records.BYTES_IN, "linger.ms", "5"));
        producer.initTransactions();
        Properties reading = properties(
            "bootstrap.servers", bootstrap, "group.id", name, "key.deserializer", Records.BYTES_OUT,
            "value.deserializer", Records.BYTES_OUT, "auto.offset.reset", "earliest", "enable.auto.commit", "false",
            "isolation.level", "read_committed", "max.poll.records", "2000", "group.protocol", protocol);
        if (protocol.equals("classic")) { // Otherwise the broker decides this time.
            reading.setProperty("session.timeout.ms", "10000");
        }
        consumer = new KafkaConsumer<>(reading);
        consumer.subscribe(List.of(source));
    }

    private static Properties properties(String... pairs) {
        Properties properties = new Properties();
        for (int i = 0; i < pairs.length; i += 2) {
            properties.setProperty(pairs[i], pairs[i + 1]);
        }
        return properties;
    }

    public static void main(String[] arguments) {
        try {
            new Copier(arguments[0], arguments[1], arguments[2], arguments[3], arguments[4]).run();
        } catch (Throwable failure) {
            failure.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
    }

    private void run() {
        while (true) {
            ConsumerRecords<byte[], byte[]> polled = consumer.poll(Duration.ofMillis(200));
            if (!polled.isEmpty()) {
                try {
                    copy(polled);
                } catch (KafkaException failure) {
                    System.err.println("aborts: " + failure);
                    abort();
                }
            }
        }
    }

    private void copy(ConsumerRecords<byte[], byte[]> polled) {
        producer.beginTransaction();
        polled.forEach(record -> producer.send(new ProducerRecord<>(target, record.partition(), null, record.value())));
        producer.sendOffsetsToTransaction(Transactions.positions(consumer), consumer.groupMetadata());
        producer.commitTransaction();
    }

    /** Aborts, and reads again from the committed offsets. */
    private void abort() {
        producer.abortTransaction();
        var committed = consumer.committed(consumer.assignment());
        for (TopicPartition partition : consumer.assignment()) {
            OffsetAndMetadata offset = committed.get(partition);
            consumer.seek(partition, offset == null ? 0 : offset.offset());
        }
    }
}
