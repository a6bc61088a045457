import io.vertx.core.Future;
import io.vertx.core.VerticleBase;
import io.vertx.core.buffer.Buffer;
import io.vertx.core.http.HttpServerOptions;
import io.vertx.core.http.HttpServerRequest;
import io.vertx.core.http.ServerWebSocket;
import io.vertx.core.net.PemKeyCertOptions;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

/** What one event loop serves. Instances share the port; a connection stays with the instance that got it. */
public final class Server extends VerticleBase {
    private static final int LARGEST_MESSAGE = 16 * 1024 * 1024;
    private static final String COMMAND = "broadcast ";
    private static final String PUSH_ADDRESS = "push";

    /** The members on this event loop. */
    private final Set<ServerWebSocket> members = ConcurrentHashMap.newKeySet();

    @Override
    public Future<?> start() {
        vertx.eventBus().<String>consumer(PUSH_ADDRESS, message -> push(message.body()));
        HttpServerOptions options = new HttpServerOptions()
                .setHost(System.getenv("HOST"))
                .setPort(Integer.parseInt(System.getenv("PORT")))
                .setMaxWebSocketFrameSize(LARGEST_MESSAGE)
                .setMaxWebSocketMessageSize(LARGEST_MESSAGE);
        String certificate = System.getenv("TLS_CERT");
        if (certificate != null) {
            options.setSsl(true)
                    .setKeyCertOptions(new PemKeyCertOptions()
                            .setCertPath(certificate)
                            .setKeyPath(System.getenv("TLS_KEY")));
        }
        if (System.getenv("DEFLATE") != null) {
            options.setWebSocketAllowServerNoContext(true); // Vert.x compresses by itself if asked, but not without context
        }
        return vertx.createHttpServer(options)
                .requestHandler(this::document)
                .webSocketHandler(this::accept)
                .listen();
    }

    private void accept(ServerWebSocket socket) {
        switch (socket.path()) {
            case "/echo" -> {
                socket.textMessageHandler(socket::writeTextMessage);
                socket.binaryMessageHandler(socket::writeBinaryMessage);
            }
            case "/ping" -> socket.textMessageHandler(text -> {
                if (text.equals("Ping")) {
                    socket.writeTextMessage("Pong");
                }
            });
            case "/push" -> {
                members.add(socket);
                socket.closeHandler(closed -> members.remove(socket));
                socket.textMessageHandler(text -> {
                    if (text.startsWith(COMMAND)) {
                        vertx.eventBus().publish(PUSH_ADDRESS, text.substring(COMMAND.length()));
                    }
                });
            }
            default -> socket.close();
        }
    }

    private void push(String token) {
        for (ServerWebSocket member : members) {
            member.writeTextMessage(epochMicros() + " " + token);
        }
    }

    private void document(HttpServerRequest request) {
        String size = request.getParam("size");
        if (!request.path().equals("/doc") || size == null || !size.matches("\\d{1,8}")) {
            request.response().setStatusCode(404).end();
            return;
        }
        request.response()
                .putHeader("Content-Type", "text/html")
                .end(Buffer.buffer(".".repeat(Integer.parseInt(size))));
    }

    private static long epochMicros() {
        return ChronoUnit.MICROS.between(Instant.EPOCH, Instant.now());
    }
}
