import io.undertow.Handlers;
import io.undertow.Undertow;
import io.undertow.UndertowOptions;
import io.undertow.Version;
import io.undertow.server.HttpServerExchange;
import io.undertow.util.Headers;
import io.undertow.util.StatusCodes;
import io.undertow.websockets.WebSocketConnectionCallback;
import io.undertow.websockets.core.AbstractReceiveListener;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.Deque;

/** Undertow without a servlet container: THREADS I/O threads do everything. Environment: HOST, PORT, THREADS. */
public final class Main {
    private static final int HOUR_MS = 3_600_000;

    public static void main(String[] arguments) {
        if (arguments.length == 1 && arguments[0].equals("--version")) {
            String undertow = Version.getVersionString();
            System.out.println("undertow " + undertow + ", java " + System.getProperty("java.version"));
            return;
        }
        Undertow.Builder builder = Undertow.builder()
                .addHttpListener(Integer.parseInt(System.getenv("PORT")), System.getenv("HOST"))
                .setServerOption(UndertowOptions.NO_REQUEST_TIMEOUT, HOUR_MS)
                .setHandler(Handlers.path()
                        .addExactPath("/doc", Main::document)
                        .addExactPath("/echo", Handlers.websocket(endpoint(new Echo())))
                        .addExactPath("/ping", Handlers.websocket(endpoint(new Ping())))
                        .addExactPath("/push", Push::join));
        String threads = System.getenv("THREADS");
        if (threads != null) {
            builder.setIoThreads(Integer.parseInt(threads));
        }
        builder.build().start();
    }

    private static WebSocketConnectionCallback endpoint(AbstractReceiveListener listener) {
        return (exchange, channel) -> {
            channel.getReceiveSetter().set(listener);
            channel.resumeReceives();
        };
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
