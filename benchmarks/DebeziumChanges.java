import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.format.Json;
import java.io.FileReader;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * The Debezium engine on the properties file that is named first, until as many messages of the topic that is named
 * second have come as is named third; then it is closed, which stores its offsets. Messages are JSON. They are counted
 * only, or sent by a producer with the properties file that is named fourth, which is waited for at the end only. Prints
 * {@code last} and the microseconds since 1970 UTC of the last message, or of the moment when the broker has all.
 */
public class DebeziumChanges {
    private static long messages;
    private static long bytes;

    public static void main(String[] arguments) throws Exception {
        String topic = arguments[1];
        long wanted = Long.parseLong(arguments[2]);
        CountDownLatch ended = new CountDownLatch(1);
        Producer<String, String> producer =
                arguments.length > 3
                        ? new KafkaProducer<>(read(arguments[3]), new StringSerializer(), new StringSerializer())
                        : null;
        DebeziumEngine<ChangeEvent<String, String>> engine =
                DebeziumEngine.create(Json.class)
                        .using(read(arguments[0]))
                        .notifying((ChangeEvent<String, String> event) -> {
                            if (!topic.equals(event.destination()) || event.value() == null) {
                                return;
                            }
                            bytes += event.key().length() + event.value().length();
                            if (producer != null) {
                                producer.send(
                                        new ProducerRecord<>(topic, event.key(), event.value()),
                                        (sent, error) -> {
                                            if (error != null) {
                                                System.out.println("ended " + error);
                                                System.exit(1);
                                            }
                                        });
                            }
                            if (++messages == wanted) {
                                if (producer != null) {
                                    producer.flush();
                                }
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

    private static Properties read(String name) throws Exception {
        Properties properties = new Properties();
        try (FileReader file = new FileReader(name)) {
            properties.load(file);
        }
        return properties;
    }
}
