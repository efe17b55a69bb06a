import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.Comparator;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.function.Function;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.group.api.assignor.GroupAssignment;
import org.apache.kafka.coordinator.group.api.assignor.GroupSpec;
import org.apache.kafka.coordinator.group.api.assignor.PartitionAssignor;
import org.apache.kafka.coordinator.group.api.assignor.SubscribedTopicDescriber;
import org.apache.kafka.coordinator.group.api.assignor.SubscriptionType;
import org.apache.kafka.coordinator.group.assignor.RangeAssignor;
import org.apache.kafka.coordinator.group.assignor.SimpleAssignor;
import org.apache.kafka.coordinator.group.assignor.SimpleHomogeneousAssignmentBuilder;
import org.apache.kafka.coordinator.group.assignor.UniformAssignor;
import org.apache.kafka.coordinator.group.modern.Assignment;
import org.apache.kafka.coordinator.group.modern.GroupSpecImpl;
import org.apache.kafka.coordinator.group.modern.MemberSubscriptionAndAssignmentImpl;
import org.apache.kafka.server.common.TopicIdPartition;

/**
 * Asks the assignors of Apache Kafka's group coordinator: a group in JSON on each line of the input, its assignment on
 * each line of the output. Members are visited in the order of the line. The ids of topics are small numbers, which the
 * hash sets of Java visit in ascending order.
 */
public final class Assignors {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Map<String, PartitionAssignor> ASSIGNORS =
        Map.of("uniform", new UniformAssignor(), "range", new RangeAssignor(), "simple", new SimpleAssignor());
    private static final Comparator<TopicIdPartition> BY_PLACE =
        Comparator.comparing(TopicIdPartition::topicId).thenComparing(TopicIdPartition::partitionId);

    /** A map in the order of its keys, whose new values are sets in the order of their elements. */
    private static final class Ordered<K, V> extends TreeMap<K, Set<V>> {
        private final Comparator<? super V> order;

        private Ordered(Comparator<? super K> ofKeys, Comparator<? super V> order) {
            super(ofKeys);
            this.order = order;
        }

        @Override
        public Set<V> computeIfAbsent(K key, Function<? super K, ? extends Set<V>> ignored) {
            return super.computeIfAbsent(key, each -> new TreeSet<>(order));
        }
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            System.out.println(JSON.writeValueAsString(answer(JSON.readTree(line))));
            System.out.flush();
        }
    }

    private static ObjectNode answer(JsonNode group) throws Exception {
        Map<String, MemberSubscriptionAndAssignmentImpl> members = new LinkedHashMap<>();
        Map<Uuid, Map<Integer, String>> owners = new HashMap<>();
        Set<Set<Uuid>> subscriptions = new HashSet<>();
        group.get("members").fields().forEachRemaining(entry -> {
            JsonNode member = entry.getValue();
            Set<Uuid> topics = new HashSet<>();
            member.get("topics").forEach(topic -> topics.add(id(topic.asText())));
            Map<Uuid, Set<Integer>> target = new LinkedHashMap<>();
            member.get("target").fields().forEachRemaining(assigned -> assigned.getValue().forEach(partition -> {
                Uuid topic = id(assigned.getKey());
                target.computeIfAbsent(topic, none -> new TreeSet<>()).add(partition.asInt());
                owners.computeIfAbsent(topic, none -> new HashMap<>()).put(partition.asInt(), entry.getKey());
            }));
            subscriptions.add(topics);
            members.put(entry.getKey(), new MemberSubscriptionAndAssignmentImpl(
                Optional.empty(), Optional.ofNullable(member.get("instance").textValue()), topics,
                new Assignment(Collections.unmodifiableMap(target))));
        });
        SubscriptionType type =
            subscriptions.size() == 1 ? SubscriptionType.HOMOGENEOUS : SubscriptionType.HETEROGENEOUS;
        String name = group.get("assignor").asText();
        GroupSpec spec = new GroupSpecImpl(members, type, owners);
        SubscribedTopicDescriber describer = describer(group.get("partitions"));
        boolean isOrdered = name.equals("simple") && type == SubscriptionType.HOMOGENEOUS && !members.isEmpty();
        var assigned = (isOrdered ? simple(spec, describer) : ASSIGNORS.get(name).assign(spec, describer)).members();
        ObjectNode answer = JSON.createObjectNode();
        assigned.forEach((member, assignment) -> {
            ObjectNode topics = answer.putObject(member);
            assignment.partitions().forEach((topic, partitions) ->
                new TreeSet<>(partitions).forEach(topics.withArray(Long.toString(topic.getLeastSignificantBits()))::add));
        });
        return answer;
    }

    /** Asks the builder of equal subscriptions, after its maps by partition were given the order of the partitions. */
    private static GroupAssignment simple(GroupSpec spec, SubscribedTopicDescriber topics) {
        var builder = new SimpleHomogeneousAssignmentBuilder(spec, topics);
        set(builder, "finalAssignmentByPartition", new Ordered<TopicIdPartition, Integer>(BY_PLACE, Integer::compare));
        set(builder, "finalAssignmentByMember", new Ordered<Integer, TopicIdPartition>(Integer::compare, BY_PLACE));
        return builder.build();
    }

    private static void set(Object builder, String field, Object value) {
        try {
            var found = builder.getClass().getDeclaredField(field);
            found.setAccessible(true);
            found.set(builder, value);
        } catch (ReflectiveOperationException error) {
            throw new IllegalStateException(error);
        }
    }

    private static SubscribedTopicDescriber describer(JsonNode partitions) {
        return new SubscribedTopicDescriber() {
            @Override
            public int numPartitions(Uuid topic) {
                return partitions.path(Long.toString(topic.getLeastSignificantBits())).asInt(-1);
            }

            @Override
            public Set<String> racksForPartition(Uuid topic, int partition) {
                return Set.of();
            }
        };
    }

    private static Uuid id(String number) {
        return new Uuid(0, Long.parseLong(number));
    }
}
