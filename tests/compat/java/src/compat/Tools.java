package compat;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.stream.StreamSupport;
import org.apache.kafka.common.utils.internals.Exit;

/** Runs the main method of Apache Kafka's command-line tools in this JVM: their input, output and exit status captured. */
final class Tools {
    /** Ends a tool where it would end the JVM. */
    private static final class Exited extends Error {
        private static final long serialVersionUID = 1;

        Exited() {
            super("exit", null, false, false);
        }
    }

    private final List<Runnable> shutdownHooks = new ArrayList<>();
    private Integer exitStatus;

    void addTo(Map<String, Driver.Operation> operations) {
        Exit.setExitProcedure((status, message) -> exit(status));
        Exit.setHaltProcedure((status, message) -> exit(status));
        Exit.setShutdownHookAdder((name, hook) -> shutdownHooks.add(hook));
        operations.put("run_tool", this::runTool);
    }

    /** The first exit counts: what a tool makes of the error that ends it here would never happen. */
    private void exit(int status) {
        if (exitStatus == null) {
            exitStatus = status;
        }
        throw new Exited();
    }

    private Object runTool(JsonNode request) throws Exception {
        String[] arguments = StreamSupport.stream(request.get("arguments").spliterator(), false)
            .map(JsonNode::asText).toArray(String[]::new);
        ByteArrayOutputStream output = new ByteArrayOutputStream();
        ByteArrayOutputStream errors = new ByteArrayOutputStream();
        InputStream standardInput = System.in;
        PrintStream standardOutput = System.out;
        PrintStream standardErrors = System.err;
        System.setIn(new ByteArrayInputStream(request.path("input").asText("").getBytes(StandardCharsets.UTF_8)));
        System.setOut(new PrintStream(output, true));
        System.setErr(new PrintStream(errors, true));
        exitStatus = null;
        shutdownHooks.clear();
        try {
            call(Class.forName(request.get("class").asText()), arguments);
            shutdownHooks.forEach(Runnable::run);
        } finally {
            System.setIn(standardInput);
            System.setOut(standardOutput);
            System.setErr(standardErrors);
        }
        int status = exitStatus == null ? 0 : exitStatus;
        return Map.of("status", status, "output", output.toString(), "errors", errors.toString());
    }

    private void call(Class<?> tool, String[] arguments) throws Exception {
        try {
            tool.getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (InvocationTargetException failure) {
            if (exitStatus == null) {
                failure.getCause().printStackTrace();
                exitStatus = 1;
            }
        }
    }
}
