import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.Arrays;
import org.eclipse.jetty.http.HttpHeader;
import org.eclipse.jetty.server.Handler;
import org.eclipse.jetty.server.Request;
import org.eclipse.jetty.server.Response;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.server.ServerConnector;
import org.eclipse.jetty.util.Callback;
import org.eclipse.jetty.util.Jetty;
import org.eclipse.jetty.util.ssl.SslContextFactory;
import org.eclipse.jetty.websocket.server.ServerWebSocketContainer;
import org.eclipse.jetty.websocket.server.WebSocketUpgradeHandler;

/**
 * Embedded Jetty, with the number of threads it chooses itself. Environment: HOST, PORT, TLS_KEYSTORE; Jetty compresses messages
 * whenever a client asks for it. Argument: the listen backlog.
 */
public final class Main {
    private static final int LARGEST_MESSAGE = 16 * 1024 * 1024;
    private static final Duration IDLE = Duration.ofHours(1);

    public static void main(String[] arguments) throws Exception {
        if (arguments.length == 1 && arguments[0].equals("--version")) {
            System.out.println("jetty " + Jetty.VERSION + ", java " + System.getProperty("java.version"));
            return;
        }
        Server server = new Server();
        String keystore = System.getenv("TLS_KEYSTORE");
        ServerConnector connector =
                keystore == null ? new ServerConnector(server) : new ServerConnector(server, tls(keystore));
        connector.setHost(System.getenv("HOST"));
        connector.setPort(Integer.parseInt(System.getenv("PORT")));
        connector.setIdleTimeout(IDLE.toMillis());
        if (arguments.length == 1) {
            connector.setAcceptQueueSize(Integer.parseInt(arguments[0]));
        }
        server.addConnector(connector);
        WebSocketUpgradeHandler upgrade = WebSocketUpgradeHandler.from(server, Main::configure);
        upgrade.setHandler(new Document());
        server.setHandler(upgrade);
        server.start();
        server.join();
    }

    private static SslContextFactory.Server tls(String keystore) {
        SslContextFactory.Server tls = new SslContextFactory.Server();
        tls.setKeyStorePath(keystore);
        tls.setKeyStorePassword("wsbench");
        return tls;
    }

    private static void configure(ServerWebSocketContainer container) {
        container.setIdleTimeout(IDLE);
        container.setMaxFrameSize(LARGEST_MESSAGE);
        container.setMaxTextMessageSize(LARGEST_MESSAGE);
        container.setMaxBinaryMessageSize(LARGEST_MESSAGE);
        container.addMapping("/echo", (request, response, callback) -> new Echo());
        container.addMapping("/ping", (request, response, callback) -> new Ping());
        container.addMapping("/push", (request, response, callback) -> Push.join());
    }

    private static final class Document extends Handler.Abstract.NonBlocking {
        @Override
        public boolean handle(Request request, Response response, Callback callback) {
            String size = Request.extractQueryParameters(request).getValue("size");
            if (!Request.getPathInContext(request).equals("/doc") || size == null || !size.matches("\\d{1,8}")) {
                return false; // 404
            }
            byte[] page = new byte[Integer.parseInt(size)];
            Arrays.fill(page, (byte) '.');
            response.getHeaders().put(HttpHeader.CONTENT_TYPE, "text/html");
            response.write(true, ByteBuffer.wrap(page), callback);
            return true;
        }
    }
}
