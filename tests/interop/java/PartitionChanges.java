import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.stream.Collectors;

import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.metadata.PartitionChangeRecord;
import org.apache.kafka.controller.PartitionChangeBuilder;
import org.apache.kafka.metadata.LeaderRecoveryState;
import org.apache.kafka.metadata.PartitionRegistration;
import org.apache.kafka.server.common.ApiMessageAndVersion;
import org.apache.kafka.server.common.MetadataVersion;

/** Asks Kafka's PartitionChangeBuilder for the record of each case on standard input, a line each. */
public class PartitionChanges {
    static List<Integer> ids(String text) {
        List<Integer> found = new ArrayList<>();
        for (String part : text.split(",")) {
            if (!part.isEmpty()) found.add(Integer.parseInt(part));
        }
        return found;
    }

    static int[] array(String text) {
        return ids(text).stream().mapToInt(Integer::intValue).toArray();
    }

    static String text(List<Integer> ids) {
        if (ids == null) return "-";
        return ids.stream().map(String::valueOf).collect(Collectors.joining(","));
    }

    static Uuid directory(int base, int broker) {
        return new Uuid(0L, base + broker);
    }

    static LeaderRecoveryState state(String text) {
        return LeaderRecoveryState.of(Byte.parseByte(text));
    }

    static String answer(String[] f) {
        int[] replicas = array(f[0]);
        Uuid[] directories = new Uuid[replicas.length];
        for (int i = 0; i < replicas.length; i++) directories[i] = directory(1000, replicas[i]);
        PartitionRegistration partition = new PartitionRegistration.Builder()
            .setReplicas(replicas)
            .setDirectories(directories)
            .setIsr(array(f[1]))
            .setElr(array(f[2]))
            .setLastKnownElr(array(f[3]))
            .setLeader(Integer.parseInt(f[4]))
            .setAddingReplicas(array(f[5]))
            .setRemovingReplicas(array(f[6]))
            .setLeaderRecoveryState(state(f[7]))
            .setLeaderEpoch(7)
            .setPartitionEpoch(9)
            .build();
        List<Integer> alive = ids(f[8]);
        PartitionChangeBuilder builder = new PartitionChangeBuilder(
            partition,
            new Uuid(0L, 500L),
            3,
            alive::contains,
            MetadataVersion.fromFeatureLevel(Short.parseShort(f[9])),
            Integer.parseInt(f[10]),
            f[11].equals("true")
        );
        builder.setElection(PartitionChangeBuilder.Election.valueOf(f[12]));
        if (!f[13].equals("-")) builder.setTargetIsr(ids(f[13]));
        if (!f[14].equals("-")) builder.setTargetReplicas(ids(f[14]));
        if (!f[15].equals("-")) builder.setTargetAdding(ids(f[15]));
        if (!f[16].equals("-")) builder.setTargetRemoving(ids(f[16]));
        if (!f[17].equals("-")) builder.setTargetLeaderRecoveryState(state(f[17]));
        if (!f[18].equals("-")) builder.setUncleanShutdownReplicas(ids(f[18]));
        builder.setDefaultDirProvider(broker -> directory(2000, broker));
        Optional<ApiMessageAndVersion> built = builder.build();
        if (built.isEmpty()) return "nothing";
        PartitionChangeRecord record = (PartitionChangeRecord) built.get().message();
        String placed = record.directories() == null ? "-" : record.directories().stream()
            .map(uuid -> String.valueOf(uuid.getLeastSignificantBits()))
            .collect(Collectors.joining(","));
        return String.join(";",
            String.valueOf(record.leader()),
            text(record.isr()),
            text(record.eligibleLeaderReplicas()),
            text(record.lastKnownElr()),
            text(record.replicas()),
            text(record.addingReplicas()),
            text(record.removingReplicas()),
            String.valueOf(record.leaderRecoveryState()),
            placed,
            String.valueOf(built.get().version()));
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
