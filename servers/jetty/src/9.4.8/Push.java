import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import org.eclipse.jetty.websocket.api.RemoteEndpoint;
import org.eclipse.jetty.websocket.api.Session;
import org.eclipse.jetty.websocket.api.WebSocketAdapter;

/** Sends the text "MICROS TOKEN" to every member when one of them says "broadcast TOKEN". */
public final class Push extends WebSocketAdapter {
    private static final String COMMAND = "broadcast ";
    private static final Set<Push> MEMBERS = ConcurrentHashMap.newKeySet();

    /** Jetty calls onWebSocketConnect after the 101 is out; a broadcast that comes before is sent then. */
    private final CompletableFuture<RemoteEndpoint> remote = new CompletableFuture<>();

    /** A member from before its handshake; forgotten if that is not completed. */
    static Push join() {
        Push member = new Push();
        MEMBERS.add(member);
        member.remote.orTimeout(1, TimeUnit.MINUTES).exceptionally(gone -> {
            MEMBERS.remove(member);
            return null;
        });
        return member;
    }

    @Override
    public void onWebSocketConnect(Session session) {
        super.onWebSocketConnect(session);
        remote.complete(getRemote());
    }

    @Override
    public void onWebSocketClose(int status, String reason) {
        MEMBERS.remove(this);
        super.onWebSocketClose(status, reason);
    }

    @Override
    public void onWebSocketText(String message) {
        if (message.startsWith(COMMAND)) {
            String token = message.substring(COMMAND.length());
            MEMBERS.forEach(member -> member.remote.thenAccept(
                    endpoint -> endpoint.sendStringByFuture(epochMicros() + " " + token)));
        }
    }

    private static long epochMicros() {
        return ChronoUnit.MICROS.between(Instant.EPOCH, Instant.now());
    }
}
