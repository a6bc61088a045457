import io.undertow.Handlers;
import io.undertow.Undertow;
import io.undertow.UndertowOptions;
import io.undertow.Version;
import io.undertow.server.HttpServerExchange;
import io.undertow.util.Headers;
import io.undertow.util.StatusCodes;
import io.undertow.websockets.WebSocketProtocolHandshakeHandler;
import io.undertow.websockets.core.AbstractReceiveListener;
import io.undertow.websockets.extensions.PerMessageDeflateHandshake;
import java.io.File;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.security.GeneralSecurityException;
import java.security.KeyStore;
import java.util.Arrays;
import java.util.Deque;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;

/**
 * Undertow without a servlet container: THREADS I/O threads do everything.
 * Environment: HOST, PORT, THREADS, TLS_KEYSTORE, DEFLATE.
 */
public final class Main {
    private static final int HOUR_MS = 3_600_000;

    public static void main(String[] arguments) throws Exception {
        if (arguments.length == 1 && arguments[0].equals("--version")) {
            String undertow = Version.getVersionString();
            System.out.println("undertow " + undertow + ", java " + System.getProperty("java.version"));
            return;
        }
        Undertow.Builder builder = Undertow.builder()
                .setServerOption(UndertowOptions.NO_REQUEST_TIMEOUT, HOUR_MS)
                .setHandler(Handlers.path()
                        .addExactPath("/doc", Main::document)
                        .addExactPath("/echo", endpoint(new Echo()))
                        .addExactPath("/ping", endpoint(new Ping()))
                        .addExactPath("/push", Push::join));
        String host = System.getenv("HOST"), keystore = System.getenv("TLS_KEYSTORE");
        int port = Integer.parseInt(System.getenv("PORT"));
        if (keystore == null) {
            builder.addHttpListener(port, host);
        } else {
            builder.addHttpsListener(port, host, tls(new File(keystore), "wsbench".toCharArray()));
        }
        String threads = System.getenv("THREADS");
        if (threads != null) {
            builder.setIoThreads(Integer.parseInt(threads));
        }
        builder.build().start();
    }

    private static WebSocketProtocolHandshakeHandler endpoint(AbstractReceiveListener listener) {
        WebSocketProtocolHandshakeHandler handler = Handlers.websocket((exchange, channel) -> {
            channel.getReceiveSetter().set(listener);
            channel.resumeReceives();
        });
        return System.getenv("DEFLATE") == null ? handler : handler.addExtension(new PerMessageDeflateHandshake());
    }

    private static SSLContext tls(File keystore, char[] password) throws GeneralSecurityException, IOException {
        KeyManagerFactory keys = KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
        keys.init(KeyStore.getInstance(keystore, password), password);
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(keys.getKeyManagers(), null, null);
        return context;
    }

    private static void document(HttpServerExchange exchange) {
        Deque<String> size = exchange.getQueryParameters().get("size");
        if (size == null || !size.getFirst().matches("\\d{1,8}")) {
            exchange.setStatusCode(StatusCodes.BAD_REQUEST);
            return;
        }
        byte[] page = new byte[Integer.parseInt(size.getFirst())];
        Arrays.fill(page, (byte) '.');
        exchange.getResponseHeaders().put(Headers.CONTENT_TYPE, "text/html");
        exchange.getResponseSender().send(ByteBuffer.wrap(page));
    }
}
