import java.io.IOException;
import java.io.InputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.util.Arrays;

/** The 4 bytes Pong for the 4 bytes Ping, a thread for every connection: Threads says which kind. Environment: HOST, PORT. */
public class Main {
    private static final byte[] PING = {'P', 'i', 'n', 'g'};
    private static final byte[] PONG = {'P', 'o', 'n', 'g'};

    public static void main(String[] arguments) throws IOException {
        if (Arrays.asList(arguments).contains("--version")) {
            System.out.println("java.net, java " + System.getProperty("java.version"));
            return;
        }
        InetAddress host = InetAddress.getByName(System.getenv("HOST"));
        int port = Integer.parseInt(System.getenv("PORT"));
        try (ServerSocket listener = new ServerSocket(port, 0, host)) { // 0: java.net's own backlog, 50
            while (true) {
                Socket connection = listener.accept();
                Threads.FACTORY.newThread(() -> answer(connection)).start();
            }
        }
    }

    private static void answer(Socket connection) {
        try (connection) {
            InputStream input = connection.getInputStream();
            byte[] message = new byte[PING.length];
            while (input.readNBytes(message, 0, message.length) == message.length && Arrays.equals(message, PING)) {
                connection.getOutputStream().write(PONG);
            }
        } catch (IOException gone) {
            // The client went away; there is nobody to tell.
        }
    }
}
