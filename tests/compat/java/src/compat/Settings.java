package compat;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.Properties;

/** Client properties from a request. */
final class Settings {
    private Settings() {}

    /** The bootstrap address, {@code defaults} (name, value, ...), and over them the request's {@code config}. */
    static Properties of(String bootstrap, JsonNode request, String... defaults) {
        Properties properties = new Properties();
        properties.setProperty("bootstrap.servers", bootstrap);
        for (int i = 0; i < defaults.length; i += 2) {
            properties.setProperty(defaults[i], defaults[i + 1]);
        }
        if (request.has("config")) {
            request.get("config").properties().forEach(e -> properties.setProperty(e.getKey(), e.getValue().asText()));
        }
        return properties;
    }
}
