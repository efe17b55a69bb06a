package compat;

import com.fasterxml.jackson.databind.JsonNode;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeSet;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.utils.Utils;

/** Producing, reading from the beginning, offsets by time, the partition of a key. Bytes travel as hexadecimal. */
final class Records {
    static final String BYTES_IN = "org.apache.kafka.common.serialization.ByteArraySerializer";
    static final String BYTES_OUT = "org.apache.kafka.common.serialization.ByteArrayDeserializer";
    private final String bootstrap;
    private KafkaProducer<byte[], byte[]> longLived;

    Records(String bootstrap) {
        this.bootstrap = bootstrap;
    }

    void addTo(Map<String, Driver.Operation> operations) {
        operations.put("produce", this::produce);
        operations.put("failures", this::failures);
        operations.put("read", this::read);
        operations.put("offsets_for_time", this::offsetsForTime);
        operations.put("partitions_of_keys", this::partitionsOfKeys);
        operations.put("open_producer", this::openProducer);
        operations.put("send_keys", this::sendKeys);
        operations.put("close_producer", request -> {
            longLived.close();
            return null;
        });
    }

    private Object produce(JsonNode request) throws Exception {
        List<List<Long>> places = new ArrayList<>();
        for (Future<RecordMetadata> future : sent(request)) {
            RecordMetadata metadata = future.get();
            places.add(List.of((long) metadata.partition(), metadata.hasOffset() ? metadata.offset() : -1L));
        }
        return places;
    }

    /** Why each record could not be sent: class and message, null where it was. */
    private Object failures(JsonNode request) throws Exception {
        List<List<String>> failures = new ArrayList<>();
        for (Future<RecordMetadata> future : sent(request)) {
            try {
                future.get();
                failures.add(null);
            } catch (ExecutionException failure) {
                Throwable cause = failure.getCause();
                failures.add(List.of(cause.getClass().getSimpleName(), String.valueOf(cause.getMessage())));
            }
        }
        return failures;
    }

    /** All of them at once, so that those of a partition come in one batch. */
    private List<Future<RecordMetadata>> sent(JsonNode request) {
        Properties properties = Settings.of(bootstrap, request,
            "key.serializer", BYTES_IN, "value.serializer", BYTES_IN, "linger.ms", "50", "max.block.ms", "20000",
            "compression.type", request.path("compression").asText("none"),
            "enable.idempotence", request.path("idempotent").asText("false"),
            "acks", request.path("acks").asText("all"));
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(properties)) {
            for (JsonNode message : request.get("messages")) {
                sent.add(producer.send(record(request.get("topic").asText(), message)));
            }
        }
        return sent;
    }

    static ProducerRecord<byte[], byte[]> record(String topic, JsonNode message) {
        List<Header> headers = new ArrayList<>();
        for (JsonNode header : message.path("headers")) {
            headers.add(new RecordHeader(header.get(0).asText(), bytes(header.get(1))));
        }
        Integer partition = message.path("partition").isNumber() ? message.get("partition").asInt() : null;
        Long timestamp = message.path("timestamp_ms").isNumber() ? message.get("timestamp_ms").asLong() : null;
        byte[] key = bytes(message.path("key"));
        return new ProducerRecord<>(topic, partition, timestamp, key, bytes(message.path("value")), headers);
    }

    private Object read(JsonNode request) {
        Properties properties = Settings.of(bootstrap, request,
            "key.deserializer", BYTES_OUT, "value.deserializer", BYTES_OUT, "auto.offset.reset", "earliest",
            "enable.auto.commit", "false",
            "isolation.level", request.path("committed").asBoolean() ? "read_committed" : "read_uncommitted");
        List<Object> records = new ArrayList<>();
        long deadline = System.currentTimeMillis() + 30_000;
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(properties)) {
            consumer.assign(partitions(consumer, request.get("topic").asText()));
            consumer.seekToBeginning(consumer.assignment());
            while (records.size() < request.get("count").asInt() && System.currentTimeMillis() < deadline) {
                consumer.poll(Duration.ofMillis(200)).forEach(record -> records.add(describe(record)));
            }
        }
        return records;
    }

    static List<TopicPartition> partitions(KafkaConsumer<byte[], byte[]> consumer, String topic) {
        return consumer.partitionsFor(topic).stream().map(p -> new TopicPartition(topic, p.partition())).toList();
    }

    static Map<String, Object> describe(ConsumerRecord<byte[], byte[]> record) {
        List<Object> headers = new ArrayList<>();
        for (Header header : record.headers()) {
            List<String> pair = new ArrayList<>();
            pair.add(header.key());
            pair.add(hex(header.value()));
            headers.add(pair);
        }
        Map<String, Object> described = new LinkedHashMap<>();
        described.put("topic", record.topic());
        described.put("partition", record.partition());
        described.put("offset", record.offset());
        described.put("timestamp_ms", record.timestamp());
        described.put("key", hex(record.key()));
        described.put("value", hex(record.value()));
        described.put("headers", headers);
        return described;
    }

    private Object offsetsForTime(JsonNode request) {
        Properties properties = Settings.of(bootstrap, request, "key.deserializer", BYTES_OUT, "value.deserializer", BYTES_OUT);
        Map<Integer, Long> offsets = new LinkedHashMap<>();
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(properties)) {
            Map<TopicPartition, Long> times = new LinkedHashMap<>();
            for (TopicPartition partition : partitions(consumer, request.get("topic").asText())) {
                times.put(partition, request.get("timestamp_ms").asLong());
            }
            consumer.offsetsForTimes(times).forEach((p, o) -> offsets.put(p.partition(), o == null ? -1 : o.offset()));
        }
        return offsets;
    }

    private Object partitionsOfKeys(JsonNode request) {
        List<Integer> partitions = new ArrayList<>();
        for (JsonNode key : request.get("keys")) {
            partitions.add(Utils.toPositive(Utils.murmur2(bytes(key))) % request.get("partitions").asInt());
        }
        return partitions;
    }

    private Object openProducer(JsonNode request) {
        longLived = new KafkaProducer<>(Settings.of(bootstrap, request, "key.serializer", BYTES_IN, "value.serializer", BYTES_IN));
        return null;
    }

    /** Sends a record for each of {@code count} keys through the open producer; the partitions that they went to. */
    private Object sendKeys(JsonNode request) throws Exception {
        TreeSet<Integer> partitions = new TreeSet<>();
        for (int n = 0; n < request.get("count").asInt(); n++) {
            byte[] key = Integer.toString(n).getBytes(StandardCharsets.UTF_8);
            partitions.add(longLived.send(new ProducerRecord<>(request.get("topic").asText(), key, key)).get().partition());
        }
        return partitions;
    }

    static byte[] bytes(JsonNode text) {
        return text.isTextual() ? HexFormat.of().parseHex(text.asText()) : null;
    }

    static String hex(byte[] bytes) {
        return bytes == null ? null : HexFormat.of().formatHex(bytes);
    }
}
