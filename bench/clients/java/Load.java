import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Load runs with the Java client. One process serves many runs, so that its own JIT is as warm for one broker as for
 * the other: each line of standard input is a run, answered by one line of JSON (or {"error": ...}).
 *
 * <p>MODE BROKERS TOPIC PARTITIONS RECORD_BYTES RECORDS_MAX SECONDS_MAX [client setting=value ...], where MODE is produce,
 * consume, in-flight (one record at a time, send to acknowledgement), poll (one at a time, send to poll), or one of those
 * of Transactions.java.
 */
public final class Load {
    private static final int PAYLOAD_BYTES = 1 << 16;
    private static final Duration SILENCE_MAX = Duration.ofSeconds(20);

    record Job(String brokers, String topic, int partitions, int recordBytes, int recordsMax, double secondsMax,
                       Map<String, Object> settings) {
        Job with(Map<String, Object> others) {
            return new Job(brokers, topic, partitions, recordBytes, recordsMax, secondsMax, others);
        }

        String text(String setting) {
            return (String) settings.get(setting);
        }

        double number(String setting) {
            return Double.parseDouble(text(setting));
        }

        byte[] payload(Random random) {
            byte[] value = new byte[recordBytes];
            System.arraycopy(PAYLOAD, random.nextInt(PAYLOAD_BYTES - recordBytes), value, 0, recordBytes);
            return value;
        }

        List<TopicPartition> assignment() {
            List<TopicPartition> all = new ArrayList<>();
            for (int i = 0; i < partitions; i++) all.add(new TopicPartition(topic, i));
            return all;
        }
    }

    private interface Mode {
        String run(Job job) throws Exception;
    }

    private static final Map<String, Mode> MODES = Map.of(
        "produce", Load::produce, "consume", Load::consume, "in-flight", Load::inFlight, "poll", Load::produceToPoll,
        "transact", Transactions::transact, "copy", Transactions::copy);
    private static final byte[] PAYLOAD = payload();

    /** Half text, half noise: compresses about two to one. */
    private static byte[] payload() {
        byte[] bytes = new byte[PAYLOAD_BYTES];
        new Random(7).nextBytes(bytes);
        byte[] text = "the quick brown fox jumps over".getBytes();
        for (int i = 0; i < PAYLOAD_BYTES; i++) if ((i / 16) % 2 == 0) bytes[i] = text[i % text.length];
        return bytes;
    }

    static double cpuSeconds() {
        var system = (com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        return system.getProcessCpuTime() * 1e-9;
    }

    static double now() {
        return System.nanoTime() * 1e-9;
    }

    static KafkaProducer<byte[], byte[]> producer(Job job) {
        Map<String, Object> settings = new HashMap<>(job.settings());
        settings.keySet().removeIf(name -> name.startsWith("bench."));
        settings.put("bootstrap.servers", job.brokers());
        return new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
    }

    static KafkaConsumer<byte[], byte[]> consumer(Job job, Map<String, Object> more) {
        Map<String, Object> settings = new HashMap<>(more);
        settings.put("bootstrap.servers", job.brokers());
        settings.put("enable.auto.commit", false);
        settings.put("auto.offset.reset", "earliest");
        var consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        consumer.assign(job.assignment());
        return consumer;
    }

    private static String throughput(double seconds, long records, long bytes, double cpu) {
        return String.format(Locale.ROOT, "{\"seconds\": %.6f, \"records\": %d, \"bytes\": %d, \"client_cpu_s\": %.6f}",
            seconds, records, bytes, cpu);
    }

    private static String produce(Job job) throws Exception {
        try (var producer = producer(job)) {
            List<PartitionInfo> partitions = producer.partitionsFor(job.topic());
            for (PartitionInfo each : partitions)
                producer.send(new ProducerRecord<>(job.topic(), each.partition(), null, job.payload(new Random(7))));
            producer.flush();
            Random random = new Random(7);
            byte[][] values = new byte[256][];
            for (int i = 0; i < values.length; i++) values[i] = job.payload(random);
            AtomicLong failed = new AtomicLong();
            double start = now(), cpu = cpuSeconds();
            int sent = 0;
            for (; sent < job.recordsMax() && (sent % 256 != 0 || now() - start < job.secondsMax()); sent++) {
                int partition = sent / 256 % job.partitions();
                var record = new ProducerRecord<byte[], byte[]>(job.topic(), partition, null, values[sent % 256]);
                producer.send(record, (done, error) -> {
                    if (error != null) failed.incrementAndGet();
                });
            }
            producer.flush();
            if (failed.get() > 0) throw new IllegalStateException(failed + " records were not acknowledged");
            return throughput(now() - start, sent, (long) sent * job.recordBytes(), cpuSeconds() - cpu);
        }
    }

    private static String consume(Job job) {
        try (var consumer = consumer(job, job.settings())) {
            double start = now(), cpu = cpuSeconds(), last = start;
            long records = 0, bytes = 0;
            while (records < job.recordsMax() && now() - start < job.secondsMax()) {
                for (var record : consumer.poll(Duration.ofMillis(100))) {
                    records++;
                    bytes += record.value().length;
                    last = 0;
                }
                if (last == 0) last = now();
                if (now() - last > SILENCE_MAX.toSeconds()) throw new IllegalStateException("no records arrive");
            }
            return throughput(last - start, records, bytes, cpuSeconds() - cpu);
        }
    }

    /** The first tenth of the round trips warms up and is not counted. */
    private static String latencies(double[] seconds, int count, double cpu) {
        double[] counted = Arrays.copyOfRange(seconds, count / 10, count);
        if (counted.length < 100) throw new IllegalStateException("fewer than 100 round trips");
        Arrays.sort(counted);
        return String.format(Locale.ROOT,
            "{\"records\": %d, \"p50_us\": %.1f, \"p99_us\": %.1f, \"max_us\": %.1f, \"client_cpu_s\": %.6f}",
            counted.length, counted[counted.length / 2] * 1e6, counted[(int) (counted.length * 0.99)] * 1e6,
            counted[counted.length - 1] * 1e6, cpu);
    }

    private static String inFlight(Job job) throws Exception {
        try (var producer = producer(job)) {
            producer.partitionsFor(job.topic());
            byte[] value = job.payload(new Random(7));
            double[] taken = new double[job.recordsMax()];
            double start = now(), cpu = cpuSeconds();
            int count = 0;
            for (; count < taken.length && now() - start < job.secondsMax(); count++) {
                double sent = now();
                producer.send(new ProducerRecord<>(job.topic(), count % job.partitions(), null, value)).get();
                taken[count] = now() - sent;
            }
            return latencies(taken, count, cpuSeconds() - cpu);
        }
    }

    private static String produceToPoll(Job job) {
        try (var producer = producer(job); var consumer = consumer(job, Map.of())) {
            producer.partitionsFor(job.topic());
            byte[] value = job.payload(new Random(7));
            double[] taken = new double[job.recordsMax()];
            double start = now(), cpu = cpuSeconds();
            int count = 0;
            for (; count < taken.length && now() - start < job.secondsMax(); count++) {
                double sent = now();
                producer.send(new ProducerRecord<>(job.topic(), 0, null, value));
                while (consumer.poll(Duration.ofSeconds(1)).isEmpty())
                    if (now() - sent > SILENCE_MAX.toSeconds()) throw new IllegalStateException("a record did not arrive");
                taken[count] = now() - sent;
            }
            return latencies(taken, count, cpuSeconds() - cpu);
        }
    }

    private static Job job(String[] words) {
        Map<String, Object> settings = new HashMap<>();
        for (String word : Arrays.asList(words).subList(7, words.length)) {
            String[] pair = word.split("=", 2);
            settings.put(pair[0], pair[1]);
        }
        return new Job(words[1], words[2], Integer.parseInt(words[3]), Integer.parseInt(words[4]),
            Integer.parseInt(words[5]), Double.parseDouble(words[6]), settings);
    }

    public static void main(String[] arguments) throws Exception {
        var lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.trim().split(" +");
            try {
                System.out.println(MODES.get(words[0]).run(job(words)));
            } catch (Exception error) {
                System.out.println("{\"error\": \"" + error.toString().replaceAll("[\"\\\\\\n]", " ") + "\"}");
            }
            System.out.flush();
        }
    }
}
