import io.debezium.embedded.Connect;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.RecordChangeEvent;
import io.debezium.engine.format.ChangeEventFormat;
import java.io.FileReader;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.connect.data.Field;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.source.SourceRecord;

/**
 * The Debezium engine on the properties file that is named first, until as many snapshot rows have come as is named
 * second. Every value of a row is looked at. Tells on standard output, one line each, what happened when, in
 * microseconds since 1970 UTC: {@code streaming} (the first live change), {@code first} and {@code last} (snapshot row).
 */
public class DebeziumSnapshot {
    private static long rows;
    private static boolean streaming;
    private static final AtomicLong seen = new AtomicLong();

    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        try (FileReader file = new FileReader(arguments[0])) {
            properties.load(file);
        }
        long wanted = Long.parseLong(arguments[1]);
        DebeziumEngine<RecordChangeEvent<SourceRecord>> engine =
                DebeziumEngine.create(ChangeEventFormat.of(Connect.class))
                        .using(properties)
                        .notifying((RecordChangeEvent<SourceRecord> event) -> take(event.record(), wanted))
                        .using((success, message, error) -> {
                            System.out.println("ended " + message + " " + error);
                            System.exit(1);
                        })
                        .build();
        engine.run();
    }

    private static void take(SourceRecord record, long wanted) {
        if (!(record.value() instanceof Struct) || record.valueSchema().field("op") == null) {
            return;
        }
        Struct value = (Struct) record.value();
        if (!"r".equals(value.getString("op"))) {
            if (!streaming) {
                streaming = true;
                tell("streaming");
            }
            return;
        }
        Struct after = value.getStruct("after");
        for (Field field : after.schema().fields()) {
            Object cell = after.get(field);
            if (cell != null) {
                seen.addAndGet(cell.hashCode());
            }
        }
        if (rows++ == 0) {
            tell("first");
        }
        if (rows == wanted) {
            tell("last");
        }
    }

    private static void tell(String what) {
        java.time.Instant now = java.time.Instant.now();
        System.out.println(what + " " + (now.getEpochSecond() * 1_000_000 + now.getNano() / 1000));
        System.out.flush();
    }
}
