import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import org.glassfish.grizzly.CloseListener;
import org.glassfish.grizzly.Closeable;
import org.glassfish.grizzly.ICloseType;
import org.glassfish.grizzly.http.HttpRequestPacket;
import org.glassfish.grizzly.websockets.ProtocolHandler;
import org.glassfish.grizzly.websockets.WebSocket;
import org.glassfish.grizzly.websockets.WebSocketApplication;
import org.glassfish.grizzly.websockets.WebSocketListener;

/** Sends the text "MICROS TOKEN" to every member when one of them says "broadcast TOKEN". */
final class Push extends WebSocketApplication {
    private static final String COMMAND = "broadcast ";

    /** Members from before their handshake, with the socket as soon as it may be written to. */
    private final Map<WebSocket, CompletableFuture<WebSocket>> members = new ConcurrentHashMap<>();

    @Override
    public WebSocket createSocket(ProtocolHandler handler, HttpRequestPacket request, WebSocketListener... listeners) {
        WebSocket member = super.createSocket(handler, request, listeners);
        members.put(member, new CompletableFuture<>());
        CloseListener<Closeable, ICloseType> leave = (connection, kind) -> members.remove(member);
        request.getConnection().addCloseListener(leave);
        return member;
    }

    /** Called after the 101 is out; a broadcast that came before is sent now. */
    @Override
    public void onConnect(WebSocket member) {
        super.onConnect(member);
        CompletableFuture<WebSocket> connected = members.get(member);
        if (connected != null) { // else the client is already gone
            connected.complete(member);
        }
    }

    @Override
    public void onMessage(WebSocket sender, String text) {
        if (text.startsWith(COMMAND)) {
            String token = text.substring(COMMAND.length());
            members.values().forEach(member -> member.thenAccept(
                    socket -> socket.send(epochMicros() + " " + token)));
        }
    }

    private static long epochMicros() {
        return ChronoUnit.MICROS.between(Instant.EPOCH, Instant.now());
    }
}
