import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Optional;
import java.util.Random;
import java.util.stream.Collectors;

import org.apache.kafka.common.Uuid;
import org.apache.kafka.metadata.placement.ClusterDescriber;
import org.apache.kafka.metadata.placement.PartitionAssignment;
import org.apache.kafka.metadata.placement.PlacementSpec;
import org.apache.kafka.metadata.placement.StripedReplicaPlacer;
import org.apache.kafka.metadata.placement.UsableBroker;

/** Asks Kafka's StripedReplicaPlacer for the replicas of each case on standard input, a line each. */
public class Placements {
    /** Dice that anybody can throw again. */
    static class Dice extends Random {
        private long state;

        Dice(long seed) {
            state = seed;
        }

        @Override
        public int nextInt(int bound) {
            state = (state * 1103515245L + 12345L) & 0x7fffffffL;
            return (int) ((state >> 8) % bound);
        }
    }

    static String answer(String[] fields) {
        List<UsableBroker> brokers = new ArrayList<>();
        for (String part : fields[0].split(",")) {
            String[] broker = part.split(":", -1);
            Optional<String> rack = broker[1].isEmpty() ? Optional.empty() : Optional.of(broker[1]);
            brokers.add(new UsableBroker(Integer.parseInt(broker[0]), rack, broker[2].equals("1")));
        }
        ClusterDescriber cluster = new ClusterDescriber() {
            @Override
            public Iterator<UsableBroker> usableBrokers() {
                return brokers.iterator();
            }

            @Override
            public Uuid defaultDir(int broker) {
                return new Uuid(0L, broker);
            }
        };
        StripedReplicaPlacer placer = new StripedReplicaPlacer(new Dice(Long.parseLong(fields[3])));
        PlacementSpec spec = new PlacementSpec(
            0, Integer.parseInt(fields[1]), Short.parseShort(fields[2]));
        try {
            return placer.place(spec, cluster).assignments().stream()
                .map(PartitionAssignment::replicas)
                .map(ids -> ids.stream().map(String::valueOf).collect(Collectors.joining(",")))
                .collect(Collectors.joining(" "));
        } catch (RuntimeException error) {
            return error.getClass().getSimpleName();
        }
    }

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        StringBuilder out = new StringBuilder();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.append(answer(line.split(";", -1))).append('\n');
        }
        System.out.print(out);
    }
}
