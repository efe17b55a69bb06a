package compat;

import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.function.Function;
import org.apache.kafka.clients.consumer.KafkaConsumer;

/** One consumer of a group that polls in a thread of its own until it leaves. */
final class Member {
    private final KafkaConsumer<byte[], byte[]> consumer;
    private final List<Object> records = new ArrayList<>();
    private final ConcurrentLinkedQueue<Runnable> calls = new ConcurrentLinkedQueue<>();
    private final Thread thread;
    private volatile List<List<Object>> assignment = List.of();
    private volatile String failure;
    private volatile boolean leaving;
    private long readNanos;
    private volatile long longestGapNanos;

    Member(Properties properties, List<String> topics) {
        consumer = new KafkaConsumer<>(properties);
        consumer.subscribe(topics);
        thread = new Thread(this::run, properties.getProperty("client.id"));
        thread.setDaemon(true);
        thread.start();
    }

    private void run() {
        while (!leaving) {
            try {
                poll();
            } catch (RuntimeException error) {
                failure = error.toString();
                leaving = true;
            }
        }
        consumer.close();
    }

    private void poll() {
        var polled = consumer.poll(Duration.ofMillis(50));
        if (!polled.isEmpty()) {
            noteGap(System.nanoTime());
        }
        synchronized (records) {
            polled.forEach(record -> records.add(Records.describe(record)));
        }
        assignment = consumer.assignment().stream().map(p -> List.<Object>of(p.topic(), p.partition())).toList();
        for (Runnable call = calls.poll(); call != null; call = calls.poll()) {
            call.run();
        }
    }

    private void noteGap(long now) {
        if (!records.isEmpty()) {
            longestGapNanos = Math.max(longestGapNanos, now - readNanos);
        }
        readNanos = now;
    }

    /**
     * What the member holds and all that it has read; {@code failure} is the exception that ended it, or null, and
     * {@code longest_gap_s} the longest time between two polls that brought records.
     */
    Map<String, Object> state() {
        Map<String, Object> state = new LinkedHashMap<>();
        state.put("assignment", assignment);
        synchronized (records) {
            state.put("records", new ArrayList<>(records));
        }
        state.put("failure", failure);
        state.put("longest_gap_s", longestGapNanos / 1e9);
        return state;
    }

    /** Runs a call between two polls, because a consumer belongs to one thread. */
    Object call(Function<KafkaConsumer<byte[], byte[]>, Object> function) throws Exception {
        CompletableFuture<Object> done = new CompletableFuture<>();
        calls.add(() -> {
            try {
                done.complete(function.apply(consumer));
            } catch (RuntimeException error) {
                done.completeExceptionally(error);
            }
        });
        return done.get();
    }

    void leave() throws InterruptedException {
        leaving = true;
        thread.join();
    }
}
