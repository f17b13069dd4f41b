import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.format.Json;
import java.io.FileReader;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;

/**
 * The Debezium engine on the properties file that is named first, until as many messages of the topic that is named
 * second have come as is named third; then it is closed, which stores its offsets. Messages are JSON, as they would be
 * sent to Kafka, and are counted only. Prints {@code last} and the microseconds since 1970 UTC.
 */
public class DebeziumChanges {
    private static long messages;
    private static long bytes;

    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        try (FileReader file = new FileReader(arguments[0])) {
            properties.load(file);
        }
        String topic = arguments[1];
        long wanted = Long.parseLong(arguments[2]);
        CountDownLatch ended = new CountDownLatch(1);
        DebeziumEngine<ChangeEvent<String, String>> engine =
                DebeziumEngine.create(Json.class)
                        .using(properties)
                        .notifying((ChangeEvent<String, String> event) -> {
                            if (!topic.equals(event.destination()) || event.value() == null) {
                                return;
                            }
                            bytes += event.key().length() + event.value().length();
                            if (++messages == wanted) {
                                java.time.Instant now = java.time.Instant.now();
                                System.out.println("last " + (now.getEpochSecond() * 1_000_000 + now.getNano() / 1000));
                                ended.countDown();
                            }
                        })
                        .using((success, message, error) -> {
                            if (!success) {
                                System.out.println("ended " + message + " " + error);
                                System.exit(1);
                            }
                        })
                        .build();
        Thread thread = new Thread(engine);
        thread.start();
        System.out.println("started 0");
        System.out.flush();
        ended.await();
        engine.close();
        thread.join();
        System.exit(bytes > 0 ? 0 : 1);
    }
}
