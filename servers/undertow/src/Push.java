import io.undertow.Handlers;
import io.undertow.server.HttpServerExchange;
import io.undertow.websockets.core.AbstractReceiveListener;
import io.undertow.websockets.core.BufferedTextMessage;
import io.undertow.websockets.core.WebSocketChannel;
import io.undertow.websockets.core.WebSockets;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;

/** Sends the text "MICROS TOKEN" to every member when one of them says "broadcast TOKEN". */
final class Push extends AbstractReceiveListener {
    private static final String COMMAND = "broadcast ";
    private static final Push LISTENER = new Push();

    /** Members from before their handshake: a channel comes into being only after the 101 is out, and then would be late. */
    private static final Set<CompletableFuture<WebSocketChannel>> MEMBERS = ConcurrentHashMap.newKeySet();

    /** A broadcast that comes before the channel is sent as soon as there is one. */
    static void join(HttpServerExchange exchange) throws Exception {
        CompletableFuture<WebSocketChannel> member = new CompletableFuture<>();
        MEMBERS.add(member);
        exchange.getConnection().addCloseListener(connection -> MEMBERS.remove(member));
        Handlers.websocket((handshake, channel) -> {
            channel.getReceiveSetter().set(LISTENER);
            channel.resumeReceives();
            member.complete(channel);
        }).handleRequest(exchange);
    }

    @Override
    protected void onFullTextMessage(WebSocketChannel sender, BufferedTextMessage message) {
        String text = message.getData();
        if (text.startsWith(COMMAND)) {
            String token = text.substring(COMMAND.length());
            MEMBERS.forEach(member -> member.thenAccept(
                    channel -> WebSockets.sendText(epochMicros() + " " + token, channel, null)));
        }
    }

    private static long epochMicros() {
        return ChronoUnit.MICROS.between(Instant.EPOCH, Instant.now());
    }
}
