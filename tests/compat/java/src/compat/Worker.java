package compat;

import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.TopicPartition;

/** One member of a share group, which works in a thread of its own until it rests. */
final class Worker {
    private final KafkaShareConsumer<byte[], byte[]> consumer;
    private final boolean isExplicit;
    private final List<List<Object>> notes = new ArrayList<>();
    private final Set<Long> renewed = new HashSet<>();
    private final Thread thread;
    private volatile String failure;
    private volatile boolean resting;

    Worker(Properties properties, List<String> topics) {
        isExplicit = "explicit".equals(properties.getProperty("share.acknowledgement.mode"));
        consumer = new KafkaShareConsumer<>(properties);
        consumer.subscribe(topics);
        thread = new Thread(this::run, properties.getProperty("client.id"));
        thread.setDaemon(true);
        thread.start();
    }

    private void run() {
        try (consumer) {
            while (!resting) {
                work();
            }
        } catch (RuntimeException error) {
            failure = error.toString();
        }
    }

    private void work() {
        Map<ConsumerRecord<byte[], byte[]>, AcknowledgeType> decided = new LinkedHashMap<>();
        consumer.poll(Duration.ofMillis(100)).forEach(record -> decided.put(record, decide(record)));
        if (isExplicit) {
            decided.forEach(consumer::acknowledge);
        }
        Map<TopicIdPartition, Optional<KafkaException>> outcomes = consumer.commitSync();
        Map<TopicPartition, Boolean> stored = new LinkedHashMap<>();
        outcomes.forEach((partition, error) -> stored.put(partition.topicPartition(), error.isEmpty()));
        synchronized (notes) {
            decided.forEach((record, type) -> notes.add(List.of(number(record), type.id,
                stored.getOrDefault(new TopicPartition(record.topic(), record.partition()), false))));
        }
    }

    /** What a member that acknowledges explicitly does with a record, by its number; {@code test_share_workers} has the same. */
    private AcknowledgeType decide(ConsumerRecord<byte[], byte[]> record) {
        long number = number(record);
        if (!isExplicit) {
            return AcknowledgeType.ACCEPT;
        } else if (number % 10 == 3) {
            return AcknowledgeType.REJECT;
        } else if (number % 25 == 9 || (number % 10 == 5 && record.deliveryCount().orElse((short) 1) == 1)) {
            return AcknowledgeType.RELEASE;
        } else if (number % 10 == 7 && renewed.add(number)) {
            return AcknowledgeType.RENEW;
        }
        return AcknowledgeType.ACCEPT;
    }

    private static long number(ConsumerRecord<byte[], byte[]> record) {
        return Long.parseLong(new String(record.value()));
    }

    /** Each record's number, the id of its acknowledgement, and whether the broker has stored it; and what ended the member. */
    Map<String, Object> state() {
        Map<String, Object> state = new LinkedHashMap<>();
        synchronized (notes) {
            state.put("notes", new ArrayList<>(notes));
        }
        state.put("failure", failure);
        return state;
    }

    void rest() throws InterruptedException {
        resting = true;
        thread.join();
    }

    /** The members of share groups, by the names that the caller gave them. */
    static void addTo(Map<String, Driver.Operation> operations, String bootstrap) {
        Map<String, Worker> workers = new LinkedHashMap<>();
        operations.put("work", request -> {
            workers.put(request.get("member").asText(), start(request, bootstrap));
            return null;
        });
        operations.put("worked", request -> workers.get(request.get("member").asText()).state());
        operations.put("rest", request -> {
            Worker worker = workers.remove(request.get("member").asText());
            worker.rest();
            return worker.state();
        });
    }

    private static Worker start(JsonNode request, String bootstrap) {
        Properties properties = Settings.of(bootstrap, request,
            "key.deserializer", Records.BYTES_OUT, "value.deserializer", Records.BYTES_OUT,
            "group.id", request.get("group").asText(), "client.id", request.get("member").asText());
        return new Worker(properties, List.of(request.get("topic").asText()));
    }
}
