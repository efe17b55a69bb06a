package compat;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.stream.StreamSupport;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;

/** The members of consumer groups, by the names that the caller gave them. */
final class Members {
    private final String bootstrap;
    private final Map<String, Member> members = new LinkedHashMap<>();

    Members(String bootstrap) {
        this.bootstrap = bootstrap;
    }

    void addTo(Map<String, Driver.Operation> operations) {
        operations.put("join", this::join);
        operations.put("state", request -> member(request).state());
        operations.put("commit", request -> member(request).call(Members::commit));
        operations.put("leave", request -> {
            Member member = members.remove(request.get("member").asText());
            member.leave();
            return member.state();
        });
        operations.put("stranger_commits", this::strangerCommits);
    }

    private Member member(JsonNode request) {
        return members.get(request.get("member").asText());
    }

    private Object join(JsonNode request) {
        Properties properties = Settings.of(bootstrap, request,
            "key.deserializer", Records.BYTES_OUT, "value.deserializer", Records.BYTES_OUT,
            "auto.offset.reset", "earliest", "enable.auto.commit", "false",
            "group.id", request.get("group").asText(), "client.id", request.get("member").asText());
        if (!"consumer".equals(properties.get("group.protocol"))) { // There the broker decides these times.
            properties.putIfAbsent("heartbeat.interval.ms", "300");
            properties.putIfAbsent("session.timeout.ms", "10000");
        }
        List<String> topics = StreamSupport.stream(request.get("topics").spliterator(), false).map(JsonNode::asText).toList();
        members.put(request.get("member").asText(), new Member(properties, topics));
        return null;
    }

    private static Object commit(KafkaConsumer<byte[], byte[]> consumer) {
        consumer.commitSync();
        return null;
    }

    /** A standalone consumer with the id of a group commits: an offset for partition 0 of the topic. */
    private Object strangerCommits(JsonNode request) {
        Properties properties = Settings.of(bootstrap, request,
            "key.deserializer", Records.BYTES_OUT, "value.deserializer", Records.BYTES_OUT,
            "group.id", request.get("group").asText());
        TopicPartition partition = new TopicPartition(request.get("topic").asText(), 0);
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(properties)) {
            consumer.assign(List.of(partition));
            consumer.commitSync(Map.of(partition, new OffsetAndMetadata(request.get("offset").asLong())));
        }
        return null;
    }
}
