package compat;

import com.fasterxml.jackson.databind.JsonNode;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;

/** Writes numbered records ({@code NAME/n}) at an even rate until it is told to end; notes what became of each. */
final class Writer {
    private static final int TURN_MS = 10;
    private final String bootstrap;
    private final List<Object> acknowledged = new ArrayList<>();
    private final List<String> errors = new ArrayList<>();
    private Thread thread;
    private volatile boolean ending;
    private int sent;
    private long lastNanos;
    private long longestGapNanos;

    Writer(String bootstrap) {
        this.bootstrap = bootstrap;
    }

    void addTo(Map<String, Driver.Operation> operations) {
        operations.put("start_writing", this::start);
        operations.put("written", request -> written());
        operations.put("stop_writing", this::stop);
    }

    private Object start(JsonNode request) {
        Properties properties = Settings.of(bootstrap, request, "key.serializer", Records.BYTES_IN,
            "value.serializer", Records.BYTES_IN, "acks", "all", "enable.idempotence", "true", "linger.ms", "5");
        thread = new Thread(() -> run(request, new KafkaProducer<>(properties)), "writer");
        thread.setDaemon(true);
        thread.start();
        return null;
    }

    private void run(JsonNode request, KafkaProducer<byte[], byte[]> producer) {
        int inTurn = Math.max(1, request.get("rate").asInt() * TURN_MS / 1000);
        try (producer) {
            while (!ending) {
                for (int end = sent + inTurn; sent < end; sent++) {
                    send(request, producer);
                }
                Thread.sleep(TURN_MS);
            }
        } catch (Exception error) {
            note(error);
        }
    }

    private void send(JsonNode request, KafkaProducer<byte[], byte[]> producer) {
        int number = sent;
        byte[] value = (request.get("writer").asText() + "/" + number).getBytes(StandardCharsets.UTF_8);
        int partition = number % request.get("partitions").asInt();
        var record = new ProducerRecord<byte[], byte[]>(request.get("topic").asText(), partition, null, value);
        producer.send(record, (metadata, error) -> answered(number, metadata, error));
    }

    private synchronized void answered(int number, RecordMetadata metadata, Exception error) {
        if (error != null) {
            note(error);
            return;
        }
        long now = System.nanoTime();
        longestGapNanos = acknowledged.isEmpty() ? 0 : Math.max(longestGapNanos, now - lastNanos);
        lastNanos = now;
        acknowledged.add(List.of(metadata.partition(), number, metadata.hasOffset() ? metadata.offset() : -1L));
    }

    private synchronized void note(Exception error) {
        errors.add(error.toString());
    }

    /** How many records were acknowledged by now. */
    private synchronized Object written() {
        return acknowledged.size();
    }

    /** Waits for the answers to all that was sent; what became of it. */
    private Object stop(JsonNode request) throws InterruptedException {
        ending = true;
        thread.join();
        Map<String, Object> report = new LinkedHashMap<>();
        report.put("sent", sent);
        report.put("acknowledged", acknowledged);
        report.put("errors", errors);
        report.put("longest_gap_s", longestGapNanos / 1e9);
        return report;
    }
}
