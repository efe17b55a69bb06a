import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Random;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;

/**
 * Transactional load runs: `transact` writes to TOPIC, `copy` reads TOPIC and writes what it read to another topic. Both commit
 * every `bench.commit.ms`; `bench.to` names the other topic. A transactional id is that of the topic, so each run has its own.
 */
final class Transactions {
    private static final double SILENCE_MAX_S = 20;

    private Transactions() {}

    /** How long each EndTxn took, after all records of its transaction were acknowledged. */
    private static final class Ends {
        private final List<Double> seconds = new ArrayList<>();

        void commit(KafkaProducer<byte[], byte[]> producer) {
            producer.flush();
            double start = Load.now();
            producer.commitTransaction();
            seconds.add(Load.now() - start);
        }

        String json(double taken, long records, long bytes, double cpu) {
            Collections.sort(seconds);
            int count = seconds.size();
            return String.format(Locale.ROOT,
                "{\"seconds\": %.6f, \"records\": %d, \"bytes\": %d, \"client_cpu_s\": %.6f, \"commits\": %d,"
                    + " \"p50_us\": %.1f, \"p99_us\": %.1f}",
                taken, records, bytes, cpu, count, seconds.get(count / 2) * 1e6, seconds.get((int) (count * 0.99)) * 1e6);
        }
    }

    private static KafkaProducer<byte[], byte[]> begun(Load.Job job) {
        Map<String, Object> settings = new HashMap<>(job.settings());
        settings.put("transactional.id", job.topic());
        var producer = Load.producer(job.with(settings));
        producer.initTransactions();
        return producer;
    }

    static String transact(Load.Job job) {
        double commitSeconds = job.number("bench.commit.ms") / 1e3;
        byte[][] values = new byte[256][];
        Random random = new Random(7);
        for (int i = 0; i < values.length; i++) values[i] = job.payload(random);
        try (var producer = begun(job)) {
            write(producer, job, values, 0, 0);
            producer.commitTransaction();
            Ends ends = new Ends();
            double start = Load.now(), cpu = Load.cpuSeconds();
            int sent = 0;
            while (sent < job.recordsMax() && Load.now() - start < job.secondsMax()) {
                sent = write(producer, job, values, sent, commitSeconds);
                ends.commit(producer);
            }
            return ends.json(Load.now() - start, sent, (long) sent * job.recordBytes(), Load.cpuSeconds() - cpu);
        }
    }

    /** Begins a transaction and sends for as long; returns how many records were sent, `sent` of them before. */
    private static int write(KafkaProducer<byte[], byte[]> producer, Load.Job job, byte[][] values, int sent, double seconds) {
        producer.beginTransaction();
        double until = Load.now() + seconds;
        do {
            for (int i = 0; i < 16; i++, sent++)
                producer.send(new ProducerRecord<>(job.topic(), sent / 16 % job.partitions(), null, values[sent % 256]));
        } while (sent < job.recordsMax() && Load.now() < until);
        return sent;
    }

    static String copy(Load.Job job) {
        double commitSeconds = job.number("bench.commit.ms") / 1e3;
        String to = job.text("bench.to");
        Map<String, Object> reading = Map.of("isolation.level", "read_committed", "group.id", job.topic());
        try (var consumer = Load.consumer(job, reading); var producer = begun(job)) {
            Ends ends = new Ends();
            double start = Load.now(), cpu = Load.cpuSeconds(), last = start;
            long records = 0, bytes = 0;
            while (records < job.recordsMax() && Load.now() - start < job.secondsMax()) {
                Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
                double until = Load.now() + commitSeconds;
                producer.beginTransaction();
                do {
                    for (var record : consumer.poll(Duration.ofMillis(5))) {
                        producer.send(new ProducerRecord<>(to, record.partition(), null, record.value()));
                        offsets.put(new TopicPartition(record.topic(), record.partition()), new OffsetAndMetadata(record.offset() + 1));
                        records++;
                        bytes += record.value().length;
                        last = Load.now();
                    }
                } while (records < job.recordsMax() && Load.now() < until);
                if (Load.now() - last > SILENCE_MAX_S) throw new IllegalStateException("no records arrive");
                if (!offsets.isEmpty()) producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
                ends.commit(producer);
            }
            return ends.json(Load.now() - start, records, bytes, Load.cpuSeconds() - cpu);
        }
    }
}
