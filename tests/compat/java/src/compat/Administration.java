package compat;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.common.TopicPartitionReplica;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.storage.internals.log.LogConfig;

/** Topics, their configs and the committed offsets of groups through the admin client. */
final class Administration {
    private final String bootstrap;
    private final Admin admin;

    Administration(String bootstrap) {
        this.bootstrap = bootstrap;
        admin = Admin.create(Map.of("bootstrap.servers", bootstrap));
    }

    void addTo(Map<String, Driver.Operation> operations) {
        operations.put("create_topic", this::createTopic);
        operations.put("create_partitions", this::createPartitions);
        operations.put("topics", request -> topics());
        operations.put("topic_configs", this::topicConfigs);
        operations.put("alter_topic_config", this::alterTopicConfig);
        operations.put("delete_topic", request -> admin.deleteTopics(List.of(topic(request))).all().get());
        operations.put("committed", this::committed);
        operations.put("move_replica", this::moveReplica);
        operations.put("known_topic_configs", request -> LogConfig.nonInternalConfigNames());
    }

    private static String topic(JsonNode request) {
        return request.get("topic").asText();
    }

    private Object createTopic(JsonNode request) throws Exception {
        Map<String, String> configs = new LinkedHashMap<>();
        request.path("configs").properties().forEach(e -> configs.put(e.getKey(), e.getValue().asText()));
        NewTopic topic = new NewTopic(topic(request), Optional.of(request.get("partitions").asInt()), Optional.empty());
        return admin.createTopics(List.of(topic.configs(configs))).all().get();
    }

    private Object createPartitions(JsonNode request) throws Exception {
        NewPartitions total = NewPartitions.increaseTo(request.get("partitions").asInt());
        return admin.createPartitions(Map.of(topic(request), total)).all().get();
    }

    private Object topics() throws Exception {
        Map<String, Integer> partitions = new LinkedHashMap<>();
        Collection<String> names = admin.listTopics().names().get();
        admin.describeTopics(names).allTopicNames().get().forEach((n, d) -> partitions.put(n, d.partitions().size()));
        return partitions;
    }

    private Object topicConfigs(JsonNode request) throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic(request));
        Map<String, String> configs = new LinkedHashMap<>();
        for (ConfigEntry entry : admin.describeConfigs(List.of(resource)).all().get().get(resource).entries()) {
            configs.put(entry.name(), entry.value());
        }
        return configs;
    }

    private Object alterTopicConfig(JsonNode request) throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic(request));
        ConfigEntry entry = new ConfigEntry(request.get("name").asText(), request.get("value").asText());
        AlterConfigOp change = new AlterConfigOp(entry, AlterConfigOp.OpType.SET);
        return admin.incrementalAlterConfigs(Map.of(resource, List.of(change))).all().get();
    }

    private Object moveReplica(JsonNode request) throws Exception {
        int partition = request.get("partition").asInt();
        TopicPartitionReplica replica = new TopicPartitionReplica(topic(request), partition, request.get("broker").asInt());
        Properties properties = Settings.of(bootstrap, request);
        try (Admin here = Admin.create(properties)) {
            return here.alterReplicaLogDirs(Map.of(replica, request.get("log_dir").asText())).all().get();
        }
    }

    private Object committed(JsonNode request) throws Exception {
        Map<Integer, Long> offsets = new LinkedHashMap<>();
        admin.listConsumerGroupOffsets(request.get("group").asText()).partitionsToOffsetAndMetadata().get()
            .forEach((partition, offset) -> {
                if (partition.topic().equals(topic(request))) {
                    offsets.put(partition.partition(), offset.offset());
                }
            });
        return offsets;
    }
}
