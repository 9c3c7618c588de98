import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.List;

import org.apache.kafka.common.security.kerberos.KerberosName;
import org.apache.kafka.common.security.kerberos.KerberosShortNamer;

/**
 * Asks Kafka's KerberosShortNamer for the user of a principal, for each line of standard input:
 * the principal and the rules, separated by tabs. Prints the user after "=", or "-" without one.
 */
public class KerberosUsers {
    static String user(String realm, String line) {
        List<String> words = new ArrayList<>(List.of(line.split("\t", -1)));
        KerberosName name = KerberosName.parse(words.remove(0));
        try {
            return "=" + KerberosShortNamer.fromUnparsedRules(realm, words).shortName(name);
        } catch (Exception e) {
            return "-";
        }
    }

    public static void main(String[] args) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String found;
            try {
                found = user(args[0], line);
            } catch (Exception e) {
                found = "-";
            }
            System.out.println(found);
        }
    }
}
