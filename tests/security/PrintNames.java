import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.Scanner;
import javax.security.auth.x500.X500Principal;

/** Prints the name of each principal whose encoding is a line of the input; both in hexadecimal. */
class PrintNames {
    public static void main(String[] arguments) {
        var input = new Scanner(System.in);
        while (input.hasNextLine()) {
            var principal = new X500Principal(HexFormat.of().parseHex(input.nextLine()));
            var name = principal.getName().getBytes(StandardCharsets.UTF_8);
            System.out.println(HexFormat.of().formatHex(name));
        }
    }
}
