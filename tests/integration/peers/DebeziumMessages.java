import com.fasterxml.jackson.databind.ObjectMapper;
import io.debezium.embedded.Connect;
import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import java.io.FileReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.header.Header;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.storage.SimpleHeaderConverter;

/**
 * The Debezium engine on the properties file that is named first, with the converters that a Kafka Connect worker uses:
 * {@code JsonConverter} for keys and values, with schemas if the file says {@code schemas=true}, and the default
 * {@code SimpleHeaderConverter}. Prints each message as a line of JSON on standard output, after a {@code >}: its topic,
 * key and value, the key's text without a schema and with it, and a list of its headers, each the name and the text.
 */
public class DebeziumMessages {
    private static final ObjectMapper mapper = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        try (FileReader file = new FileReader(arguments[0])) {
            properties.load(file);
        }
        boolean schemas = Boolean.parseBoolean(properties.getProperty("schemas"));
        JsonConverter plainKeys = converter(false, true);
        JsonConverter wholeKeys = converter(true, true);
        JsonConverter values = converter(schemas, false);
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        DebeziumEngine<ChangeEvent<SourceRecord, SourceRecord>> engine =
                DebeziumEngine.create(Connect.class)
                        .using(properties)
                        .notifying((ChangeEvent<SourceRecord, SourceRecord> event) -> {
                            SourceRecord record = event.value();
                            String plain = text(plainKeys, record.topic(), record.keySchema(), record.key());
                            String whole = text(wholeKeys, record.topic(), record.keySchema(), record.key());
                            String value = text(values, record.topic(), record.valueSchema(), record.value());
                            out.println(">[" + quoted(record.topic()) + "," + (schemas ? whole : plain) + "," + value
                                    + "," + quoted(plain) + "," + quoted(whole) + "," + quoted(headers(record)) + "]");
                        })
                        .using((success, message, error) -> {
                            out.println("ended " + message + " " + error);
                            System.exit(1);
                        })
                        .build();
        engine.run();
    }

    private static JsonConverter converter(boolean schemas, boolean isKey) {
        JsonConverter converter = new JsonConverter();
        converter.configure(Map.of("schemas.enable", schemas), isKey);
        return converter;
    }

    /** A key or value as it would be sent; null: none. */
    private static String text(JsonConverter converter, String topic, Schema schema, Object value) {
        byte[] bytes = converter.fromConnectData(topic, schema, value);
        return bytes == null ? null : new String(bytes, StandardCharsets.UTF_8);
    }

    private static List<List<String>> headers(SourceRecord record) {
        SimpleHeaderConverter converter = new SimpleHeaderConverter();
        List<List<String>> headers = new ArrayList<>();
        for (Header header : record.headers()) {
            byte[] bytes = converter.fromConnectHeader(record.topic(), header.key(), header.schema(), header.value());
            headers.add(Arrays.asList(header.key(), new String(bytes, StandardCharsets.UTF_8)));
        }
        return headers;
    }

    private static String quoted(Object value) {
        try {
            return mapper.writeValueAsString(value);
        } catch (com.fasterxml.jackson.core.JsonProcessingException error) {
            throw new IllegalStateException(error);
        }
    }
}
