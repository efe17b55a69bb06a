import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.connect.connector.Task;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.source.ExactlyOnceSupport;
import org.apache.kafka.connect.source.SourceConnector;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.source.SourceTask;

/** A source of Kafka Connect that counts to {@code count}, and goes on behind the number that was committed last. */
public final class Numbers extends SourceConnector {
    private Map<String, String> settings;

    @Override
    public String version() {
        return "1";
    }

    @Override
    public void start(Map<String, String> given) {
        settings = given;
    }

    @Override
    public void stop() {}

    @Override
    public Class<? extends Task> taskClass() {
        return Counting.class;
    }

    @Override
    public List<Map<String, String>> taskConfigs(int tasksMax) {
        return List.of(settings);
    }

    @Override
    public ConfigDef config() {
        return new ConfigDef();
    }

    @Override
    public ExactlyOnceSupport exactlyOnceSupport(Map<String, String> given) {
        return ExactlyOnceSupport.SUPPORTED;
    }

    /** The only task. */
    public static final class Counting extends SourceTask {
        private static final Map<String, String> PARTITION = Map.of("numbers", "all");
        private static final int AT_ONCE = 100;
        private String topic;
        private long count;
        private long next;

        @Override
        public String version() {
            return "1";
        }

        @Override
        public void start(Map<String, String> settings) {
            topic = settings.get("topic");
            count = Long.parseLong(settings.get("count"));
            Map<String, Object> committed = context.offsetStorageReader().offset(PARTITION);
            next = committed == null ? 0 : (Long) committed.get("next");
        }

        @Override
        public List<SourceRecord> poll() throws InterruptedException {
            Thread.sleep(100);
            List<SourceRecord> records = new ArrayList<>();
            while (next < count && records.size() < AT_ONCE) {
                String number = Long.toString(next++);
                records.add(new SourceRecord(PARTITION, Map.of("next", next), topic, 0, Schema.STRING_SCHEMA, number));
            }
            return records.isEmpty() ? null : records;
        }

        @Override
        public void stop() {}
    }
}
