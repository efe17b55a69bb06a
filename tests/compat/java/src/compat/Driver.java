package compat;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.util.LinkedHashMap;
import java.util.Map;

/**
 * Apache Kafka's Java client under remote control: one JSON request a line on standard input
 * ({@code {"op": ..., ...}}), one answer a line on standard output ({@code {"result": ...}} or {@code {"error": ...}}).
 */
public final class Driver {
    static final ObjectMapper JSON = new ObjectMapper();

    interface Operation {
        Object run(JsonNode request) throws Exception;
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err);
        Map<String, Operation> operations = new LinkedHashMap<>();
        String bootstrap = arguments[0];
        new Records(bootstrap).addTo(operations);
        new Members(bootstrap).addTo(operations);
        new Administration(bootstrap).addTo(operations);
        new Transactions(bootstrap).addTo(operations);
        addTools(operations);
        addWorkers(operations, bootstrap);
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            answers.println(JSON.writeValueAsString(answer(operations, JSON.readTree(line))));
            answers.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    /** Made with the first tool: the classes that it needs are not those of an older client. */
    private static void addTools(Map<String, Operation> operations) {
        operations.put("run_tool", request -> {
            new Tools().addTo(operations);
            return operations.get("run_tool").run(request);
        });
    }

    /** Made with the first worker, because an older client has no share consumer. */
    private static void addWorkers(Map<String, Operation> operations, String bootstrap) {
        operations.put("work", request -> {
            Worker.addTo(operations, bootstrap);
            return operations.get("work").run(request);
        });
    }

    private static Map<String, Object> answer(Map<String, Operation> operations, JsonNode request) {
        Map<String, Object> answer = new LinkedHashMap<>();
        try {
            answer.put("result", operations.get(request.get("op").asText()).run(request));
        } catch (Throwable failure) {
            Throwable cause = failure.getCause() == null ? failure : failure.getCause();
            answer.put("error", cause.getClass().getSimpleName() + ": " + cause.getMessage());
        }
        return answer;
    }
}
