package compat;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerInterceptor;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.internals.AbstractPartitionAssignor;
import org.apache.kafka.clients.producer.Partitioner;
import org.apache.kafka.clients.producer.ProducerInterceptor;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Deserializer;
import org.apache.kafka.common.serialization.Serializer;

/** What users write against the Java client's extension points. */
public final class Plugins {
    private Plugins() {}

    /** Marks each record on its way to the broker. */
    public static final class MarkingInterceptor implements ProducerInterceptor<byte[], byte[]> {
        @Override
        public ProducerRecord<byte[], byte[]> onSend(ProducerRecord<byte[], byte[]> record) {
            record.headers().add("marked", "by the interceptor".getBytes(StandardCharsets.UTF_8));
            return record;
        }

        @Override
        public void onAcknowledgement(RecordMetadata metadata, Exception exception) {}

        @Override
        public void close() {}

        @Override
        public void configure(Map<String, ?> configs) {}
    }

    /** Lets a consumer see only the records whose offset is even. */
    public static final class EvenOffsetsInterceptor implements ConsumerInterceptor<byte[], byte[]> {
        @Override
        public ConsumerRecords<byte[], byte[]> onConsume(ConsumerRecords<byte[], byte[]> records) {
            Map<TopicPartition, List<ConsumerRecord<byte[], byte[]>>> even = new java.util.HashMap<>();
            for (TopicPartition partition : records.partitions()) {
                even.put(partition, records.records(partition).stream().filter(r -> r.offset() % 2 == 0).toList());
            }
            return new ConsumerRecords<>(even, records.nextOffsets());
        }

        @Override
        public void onCommit(Map<TopicPartition, OffsetAndMetadata> offsets) {}

        @Override
        public void close() {}

        @Override
        public void configure(Map<String, ?> configs) {}
    }

    /** Writes the bytes backwards; as a deserializer it puts them right again. */
    public static final class Backwards implements Serializer<byte[]>, Deserializer<byte[]> {
        @Override
        public byte[] serialize(String topic, byte[] data) {
            byte[] turned = new byte[data.length];
            for (int i = 0; i < data.length; i++) {
                turned[i] = data[data.length - 1 - i];
            }
            return turned;
        }

        @Override
        public byte[] deserialize(String topic, byte[] data) {
            return serialize(topic, data);
        }

        @Override
        public void configure(Map<String, ?> configs, boolean isKey) {}

        @Override
        public void close() {}
    }

    /** Everything to the last partition. */
    public static final class LastPartition implements Partitioner {
        @Override
        public int partition(String topic, Object key, byte[] keyBytes, Object value, byte[] valueBytes, Cluster cluster) {
            return cluster.partitionCountForTopic(topic) - 1;
        }

        @Override
        public void close() {}

        @Override
        public void configure(Map<String, ?> configs) {}
    }

    /** Every partition to the member whose id sorts first. */
    public static final class AllToTheFirst extends AbstractPartitionAssignor {
        @Override
        public String name() {
            return "all-to-the-first";
        }

        @Override
        public Map<String, List<TopicPartition>> assign(Map<String, Integer> partitionCounts, Map<String, Subscription> members) {
            Map<String, List<TopicPartition>> assignment = new java.util.TreeMap<>();
            members.keySet().forEach(member -> assignment.put(member, new ArrayList<>()));
            List<TopicPartition> first = assignment.values().iterator().next();
            partitionCounts.forEach((topic, count) -> first.addAll(partitions(topic, count)));
            return assignment;
        }
    }
}
