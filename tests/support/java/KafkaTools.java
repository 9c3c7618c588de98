import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.Charset;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Base64;

import org.apache.kafka.common.utils.Exit;

/**
 * Runs programs one after another in one JVM: `main` of a class, with its own standard streams.
 *
 * A request is a line of words: standard input, the class, its arguments. The response is the exit
 * code, standard output and standard error. Each word is a dot and base64.
 */
public final class KafkaTools {
    /** Ends a program that calls Exit.exit. */
    private static final class Ended extends Error {
        Ended() {
            super(null, null, false, false);
        }
    }

    /** Standard output or error for as long as the JVM lives: others keep references to it. */
    private static final class Stream extends OutputStream {
        private ByteArrayOutputStream written = new ByteArrayOutputStream();
        private boolean isOpen;

        synchronized void open() {
            written = new ByteArrayOutputStream();
            isOpen = true;
        }

        /** Drop what is written from now on; whether it was open. */
        synchronized boolean shut() {
            boolean was = isOpen;
            isOpen = false;
            return was;
        }

        synchronized byte[] bytes() {
            return written.toByteArray();
        }

        @Override
        public synchronized void write(int octet) {
            if (isOpen) {
                written.write(octet);
            }
        }

        @Override
        public synchronized void write(byte[] octets, int start, int count) {
            if (isOpen) {
                written.write(octets, start, count);
            }
        }
    }

    private static final Stream OUT = new Stream();
    private static final Stream ERR = new Stream();
    private static int code;

    public static void main(String[] none) throws IOException {
        BufferedReader requests =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        PrintStream responses = System.out;
        System.setOut(new PrintStream(OUT, true, Charset.defaultCharset()));
        System.setErr(new PrintStream(ERR, true, Charset.defaultCharset()));
        Exit.setExitProcedure((status, message) -> end(status));
        Exit.setHaltProcedure((status, message) -> end(status));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            byte[][] words = Arrays.stream(line.split(" "))
                .map(word -> Base64.getDecoder().decode(word.substring(1)))
                .toArray(byte[][]::new);
            run(words);
            Base64.Encoder encoder = Base64.getEncoder();
            responses.println("." + encoder.encodeToString(Integer.toString(code).getBytes())
                + " ." + encoder.encodeToString(OUT.bytes())
                + " ." + encoder.encodeToString(ERR.bytes()));
            responses.flush();
        }
    }

    private static void run(byte[][] words) {
        System.setIn(new ByteArrayInputStream(words[0]));
        String[] arguments = new String[words.length - 2];
        for (int index = 0; index < arguments.length; index++) {
            arguments[index] = new String(words[index + 2], StandardCharsets.UTF_8);
        }
        code = 0;
        OUT.open();
        ERR.open();
        try {
            String name = new String(words[1], StandardCharsets.UTF_8);
            Class.forName(name).getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (InvocationTargetException error) {
            if (!(error.getCause() instanceof Ended)) {
                fail(error.getCause());
            }
        } catch (ReflectiveOperationException error) {
            fail(error);
        }
        OUT.shut();
        ERR.shut();
    }

    /** What Java does with an exception of a main thread. */
    private static void fail(Throwable error) {
        System.err.print("Exception in thread \"main\" ");
        error.printStackTrace();
        code = 1;
    }

    /** The first exit counts: a program may catch what ends it, and say more. */
    private static void end(int status) {
        if (OUT.shut()) {
            code = status;
        }
        ERR.shut();
        throw new Ended();
    }
}
