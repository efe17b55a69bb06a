package compat;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.stream.StreamSupport;
import org.apache.kafka.common.utils.Exit;

/** Runs the main method of Apache Kafka's command-line tools in this JVM: their input, output and exit status captured. */
final class Tools {
    /** Thrown where a tool would end the JVM. */
    private static final class Exited extends RuntimeException {
        final int status;

        Exited(int status) {
            super("exit " + status, null, false, false);
            this.status = status;
        }
    }

    void addTo(Map<String, Driver.Operation> operations) {
        Exit.setExitProcedure((status, message) -> {
            throw new Exited(status);
        });
        Exit.setHaltProcedure((status, message) -> {
            throw new Exited(status);
        });
        Exit.setShutdownHookAdder((name, hook) -> { });
        operations.put("run_tool", this::runTool);
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
        int status;
        try {
            status = call(Class.forName(request.get("class").asText()), arguments);
        } finally {
            System.out.flush();
            System.setIn(standardInput);
            System.setOut(standardOutput);
            System.setErr(standardErrors);
        }
        return Map.of("status", status, "output", output.toString(), "errors", errors.toString());
    }

    private static int call(Class<?> tool, String[] arguments) throws Exception {
        try {
            tool.getMethod("main", String[].class).invoke(null, (Object) arguments);
            return 0;
        } catch (InvocationTargetException failure) {
            if (failure.getCause() instanceof Exited exited) {
                return exited.status;
            }
            failure.getCause().printStackTrace();
            return 1;
        }
    }
}
