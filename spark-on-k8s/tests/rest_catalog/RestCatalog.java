import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.Executors;
import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.catalog.Namespace;
import org.apache.iceberg.catalog.TableIdentifier;
import org.apache.iceberg.exceptions.AlreadyExistsException;
import org.apache.iceberg.exceptions.CommitFailedException;
import org.apache.iceberg.exceptions.NoSuchNamespaceException;
import org.apache.iceberg.exceptions.NoSuchTableException;
import org.apache.iceberg.jdbc.JdbcCatalog;
import org.apache.iceberg.rest.CatalogHandlers;
import org.apache.iceberg.rest.RESTCatalogProperties.SnapshotMode;
import org.apache.iceberg.rest.RESTSerializers;
import org.apache.iceberg.rest.requests.CreateNamespaceRequest;
import org.apache.iceberg.rest.requests.CreateTableRequest;
import org.apache.iceberg.rest.requests.UpdateTableRequest;
import org.apache.iceberg.rest.responses.ConfigResponse;
import org.apache.iceberg.rest.responses.ErrorResponse;
import org.apache.iceberg.shaded.com.fasterxml.jackson.annotation.JsonAutoDetect;
import org.apache.iceberg.shaded.com.fasterxml.jackson.annotation.PropertyAccessor;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.DeserializationFeature;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.PropertyNamingStrategies;

/**
 * An Iceberg REST catalog on a free port of the loopback address, which it prints. Its requests are handled by Apache
 * Iceberg's CatalogHandlers on a JdbcCatalog, as in Iceberg's own test server. The arguments are the properties of the
 * catalog, as NAME=VALUE.
 */
public final class RestCatalog {
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final JdbcCatalog CATALOG = new JdbcCatalog();

  public static void main(String[] properties) throws IOException {
    JSON.setVisibility(PropertyAccessor.FIELD, JsonAutoDetect.Visibility.ANY);
    JSON.configure(DeserializationFeature.FAIL_ON_UNKNOWN_PROPERTIES, false);
    JSON.setPropertyNamingStrategy(PropertyNamingStrategies.KEBAB_CASE);
    RESTSerializers.registerAll(JSON);
    Map<String, String> own = new HashMap<>();
    for (String each : properties) {
      own.put(each.substring(0, each.indexOf('=')), each.substring(each.indexOf('=') + 1));
    }
    CATALOG.setConf(new Configuration());
    CATALOG.initialize("rest", own);
    HttpServer server = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 0);
    server.setExecutor(Executors.newCachedThreadPool());
    server.createContext("/", RestCatalog::answer);
    server.start();
    System.out.println(server.getAddress().getPort());
  }

  private static void answer(HttpExchange exchange) throws IOException {
    int status = 200;
    Object found;
    try {
      found = found(exchange);
    } catch (Exception error) {
      status = status(error);
      String type = error.getClass().getSimpleName();
      found = ErrorResponse.builder().responseCode(status).withType(type).withMessage(error.getMessage()).build();
    }
    byte[] content = JSON.writeValueAsBytes(found);
    exchange.getResponseHeaders().set("Content-Type", "application/json");
    exchange.sendResponseHeaders(status, content.length);
    exchange.getResponseBody().write(content);
    exchange.close();
  }

  private static Object found(HttpExchange exchange) throws IOException {
    String[] path = exchange.getRequestURI().getRawPath().split("/"); // "", v1, namespaces, NAMESPACE, tables, TABLE
    boolean changes = exchange.getRequestMethod().equals("POST");
    if (path.length == 3 && path[2].equals("config")) {
      return ConfigResponse.builder().build();
    }
    if (path.length == 3 && changes) {
      return CatalogHandlers.createNamespace(CATALOG, content(exchange, CreateNamespaceRequest.class));
    }
    Namespace namespace = Namespace.of(name(path[3]).split("\u001f"));
    if (path.length == 5 && changes) {
      return CatalogHandlers.createTable(CATALOG, namespace, content(exchange, CreateTableRequest.class));
    }
    TableIdentifier table = TableIdentifier.of(namespace, name(path[5]));
    if (changes) {
      return CatalogHandlers.updateTable(CATALOG, table, content(exchange, UpdateTableRequest.class));
    }
    return CatalogHandlers.loadTable(CATALOG, table, SnapshotMode.ALL);
  }

  private static String name(String quoted) {
    return URLDecoder.decode(quoted, StandardCharsets.UTF_8);
  }

  private static <T> T content(HttpExchange exchange, Class<T> kind) throws IOException {
    return JSON.readValue(exchange.getRequestBody(), kind);
  }

  private static int status(Exception error) {
    if (error instanceof NoSuchTableException || error instanceof NoSuchNamespaceException) {
      return 404;
    }
    if (error instanceof AlreadyExistsException || error instanceof CommitFailedException) {
      return 409;
    }
    return error instanceof IllegalArgumentException ? 400 : 500;
  }
}
