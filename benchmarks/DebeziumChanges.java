import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.format.Json;
import java.io.FileReader;
import java.time.Instant;
import java.util.Properties;
import java.util.Scanner;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * The Debezium engine on the properties file that is named first. Its messages are JSON. They are counted only, or sent
 * by a producer with the properties file that is named second. Counted are those of the topic {@code topic} in the first
 * file. Input 0 prints {@code counted} and their number. Any other input is a number of them to wait for; when they have
 * come, and the producer has sent them, {@code last} is printed with the microseconds since 1970 UTC. Ends with the
 * input.
 */
public class DebeziumChanges {
    private static final AtomicLong awaited = new AtomicLong();
    private static final AtomicLong counted = new AtomicLong();
    private static long bytes;

    public static void main(String[] arguments) throws Exception {
        Properties properties = read(arguments[0]);
        String topic = properties.getProperty("topic");
        Producer<String, String> producer =
                arguments.length > 1
                        ? new KafkaProducer<>(read(arguments[1]), new StringSerializer(), new StringSerializer())
                        : null;
        DebeziumEngine<ChangeEvent<String, String>> engine =
                DebeziumEngine.create(Json.class)
                        .using(properties)
                        .notifying((ChangeEvent<String, String> event) -> {
                            if (!topic.equals(event.destination()) || event.value() == null) {
                                return;
                            }
                            bytes += event.key().length() + event.value().length();
                            if (producer != null) {
                                producer.send(
                                        new ProducerRecord<>(topic, event.key(), event.value()),
                                        (sent, error) -> end(error));
                            }
                            if (counted.incrementAndGet() == awaited.get()) {
                                if (producer != null) {
                                    producer.flush();
                                }
                                Instant now = Instant.now();
                                System.out.println("last " + (now.getEpochSecond() * 1_000_000 + now.getNano() / 1000));
                            }
                        })
                        .using((success, message, error) -> end(success ? null : error))
                        .build();
        new Thread(engine).start();
        Scanner input = new Scanner(System.in);
        while (input.hasNextLong()) {
            long number = input.nextLong();
            if (number == 0) {
                System.out.println("counted " + counted.get());
            } else {
                awaited.set(number);
            }
        }
        System.exit(bytes > 0 ? 0 : 1);
    }

    private static void end(Throwable error) {
        if (error != null) {
            System.out.println("ended " + error);
            System.exit(1);
        }
    }

    private static Properties read(String name) throws Exception {
        Properties properties = new Properties();
        try (FileReader file = new FileReader(name)) {
            properties.load(file);
        }
        return properties;
    }
}
