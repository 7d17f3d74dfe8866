import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;

/**
 * A Java team's own program: it knows Kafka and the header names, nothing of Punctual. Schedules
 * messages, and for each key also sends the same message straight to a second topic, to show that
 * both end in the same partition. Prints what it received.
 */
class ForeignClient {
    public static void main(String[] args) throws Exception {
        String servers = args[0], requests = args[1], destination = args[2], direct = args[3];
        int messages = Integer.parseInt(args[4]);
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", servers);
        config.put("key.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
        config.put("value.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
        config.put("key.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
        config.put("value.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
        config.put("isolation.level", "read_committed");
        Instant due = Instant.now().plusSeconds(2);
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(config)) {
            for (int i = 0; i < messages; i++) {
                byte[] key = bytes("customer-" + i), value = bytes("reminder-" + i);
                ProducerRecord<byte[], byte[]> request = new ProducerRecord<>(requests, key, value);
                request.headers().add("content-type", bytes("text/plain"));
                request.headers().add("x-scheduler-deliver-to", bytes(destination));
                request.headers().add("x-scheduler-deliver-at", bytes(due.toString()));
                producer.send(request).get();
                producer.send(new ProducerRecord<>(direct, key, value)).get();
            }
        }
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(config)) {
            print(consumer, direct, messages);
            print(consumer, destination, messages);
        }
        System.out.println("due " + due.toEpochMilli());
    }

    private static void print(KafkaConsumer<byte[], byte[]> consumer, String topic, int messages) {
        List<PartitionInfo> partitions = consumer.partitionsFor(topic);
        consumer.assign(partitions.stream().map(p -> new TopicPartition(topic, p.partition())).toList());
        consumer.seekToBeginning(consumer.assignment());
        Instant deadline = Instant.now().plusSeconds(40);
        for (int seen = 0; seen < messages && Instant.now().isBefore(deadline); ) {
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                seen++;
                StringBuilder headers = new StringBuilder();
                for (Header header : record.headers()) {
                    headers.append(header.key()).append(' ');
                }
                System.out.println(String.join("\t", topic, text(record.key()), text(record.value()),
                    "" + record.partition(), "" + record.timestamp(), headers.toString().trim()));
            }
        }
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static String text(byte[] bytes) {
        return new String(bytes, StandardCharsets.UTF_8);
    }
}
