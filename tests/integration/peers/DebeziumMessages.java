import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.format.Json;
import java.io.FileReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Properties;

/**
 * The Debezium engine on the properties file that is named first. Prints each message as a line of JSON on standard
 * output, after a {@code >}: its topic, key and value, the last two as they would be sent to Kafka.
 */
public class DebeziumMessages {
    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        try (FileReader file = new FileReader(arguments[0])) {
            properties.load(file);
        }
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        DebeziumEngine<ChangeEvent<String, String>> engine =
                DebeziumEngine.create(Json.class)
                        .using(properties)
                        .notifying((ChangeEvent<String, String> event) -> {
                            out.println(
                                    ">[\"" + event.destination() + "\"," + event.key() + "," + event.value() + "]");
                        })
                        .using((success, message, error) -> {
                            out.println("ended " + message + " " + error);
                            System.exit(1);
                        })
                        .build();
        engine.run();
    }
}
