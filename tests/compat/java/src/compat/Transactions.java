package compat;

import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;

/** Transactional producers, by the names that the caller gave them, and a copy of records in one transaction. */
final class Transactions {
    private final String bootstrap;
    private final Map<String, KafkaProducer<byte[], byte[]>> writers = new LinkedHashMap<>();
    private final Map<String, Boolean> open = new LinkedHashMap<>();

    Transactions(String bootstrap) {
        this.bootstrap = bootstrap;
    }

    void addTo(Map<String, Driver.Operation> operations) {
        operations.put("open_writer", request -> writers.put(name(request), started(request)) == null);
        operations.put("write", this::write);
        operations.put("send", request -> send(request) == null);
        operations.put("write_offset", this::writeOffset);
        operations.put("end", request -> {
            open.remove(name(request));
            return end(writer(request), request);
        });
        operations.put("close_writer", request -> {
            writers.remove(name(request)).close(Duration.ZERO);
            return null;
        });
        operations.put("copy", this::copy);
    }

    private static String name(JsonNode request) {
        return request.get("writer").asText();
    }

    private KafkaProducer<byte[], byte[]> writer(JsonNode request) {
        return writers.get(name(request));
    }

    private KafkaProducer<byte[], byte[]> started(JsonNode request) {
        KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(Settings.of(bootstrap, request,
            "key.serializer", Records.BYTES_IN, "value.serializer", Records.BYTES_IN, "max.block.ms", "30000",
            "transactional.id", request.get("transactional_id").asText()));
        producer.initTransactions();
        return producer;
    }

    private List<Future<RecordMetadata>> send(JsonNode request) {
        if (open.put(name(request), true) == null) {
            writer(request).beginTransaction();
        }
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (JsonNode message : request.get("messages")) {
            sent.add(writer(request).send(Records.record(request.get("topic").asText(), message)));
        }
        return sent;
    }

    private Object writeOffset(JsonNode request) {
        TopicPartition place = new TopicPartition(request.get("topic").asText(), 0);
        writer(request).sendOffsetsToTransaction(
            Map.of(place, new OffsetAndMetadata(request.get("offset").asLong())),
            new ConsumerGroupMetadata(request.get("group").asText()));
        return null;
    }

    private Object write(JsonNode request) throws Exception {
        List<Future<RecordMetadata>> sent = send(request);
        writer(request).flush();
        for (Future<RecordMetadata> each : sent) {
            each.get();
        }
        return null;
    }

    private static Object end(KafkaProducer<byte[], byte[]> producer, JsonNode request) {
        if (request.get("commit").asBoolean()) {
            producer.commitTransaction();
        } else {
            producer.abortTransaction();
        }
        return null;
    }

    private Object copy(JsonNode request) {
        try (KafkaProducer<byte[], byte[]> producer = started(request);
                KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(Settings.of(bootstrap, request,
                    "key.deserializer", Records.BYTES_OUT, "value.deserializer", Records.BYTES_OUT,
                    "auto.offset.reset", "earliest", "enable.auto.commit", "false",
                    "isolation.level", "read_committed", "group.id", request.get("group").asText()))) {
            consumer.subscribe(List.of(request.get("topic").asText()));
            producer.beginTransaction();
            int left = request.get("count").asInt();
            while (left > 0) {
                var polled = consumer.poll(Duration.ofMillis(200));
                polled.forEach(record -> producer.send(new ProducerRecord<>(
                    request.get("target").asText(), record.partition(), null, record.value())));
                left -= polled.count();
            }
            producer.flush(); // An abort drops what was not sent, and the test looks for aborted records.
            producer.sendOffsetsToTransaction(positions(consumer), consumer.groupMetadata());
            return end(producer, request);
        }
    }

    static Map<TopicPartition, OffsetAndMetadata> positions(KafkaConsumer<byte[], byte[]> consumer) {
        Map<TopicPartition, OffsetAndMetadata> positions = new LinkedHashMap<>();
        consumer.assignment().forEach(p -> positions.put(p, new OffsetAndMetadata(consumer.position(p))));
        return positions;
    }
}
