import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.producer.ProducerConfig;

/** Prints the settings of Kafka's clients that a source or a sink may be given. */
public class ClientConfigNames {
    public static void main(String[] none) {
        ConsumerConfig.configNames().forEach(name -> System.out.println("source " + name));
        ProducerConfig.configNames().forEach(name -> System.out.println("sink " + name));
    }
}
