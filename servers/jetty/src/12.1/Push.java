import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import org.eclipse.jetty.websocket.api.Callback;
import org.eclipse.jetty.websocket.api.Session;

/** Sends the text "MICROS TOKEN" to every member when one of them says "broadcast TOKEN". */
public final class Push implements Session.Listener.AutoDemanding {
    private static final String COMMAND = "broadcast ";
    private static final Set<Push> MEMBERS = ConcurrentHashMap.newKeySet();

    /** Jetty calls onWebSocketOpen after the 101 is out; a broadcast that comes before is sent then. */
    private final CompletableFuture<Session> session = new CompletableFuture<>();

    /** A member from before its handshake; forgotten if that is not completed. */
    static Push join() {
        Push member = new Push();
        MEMBERS.add(member);
        member.session.orTimeout(1, TimeUnit.MINUTES).exceptionally(gone -> {
            MEMBERS.remove(member);
            return null;
        });
        return member;
    }

    @Override
    public void onWebSocketOpen(Session opened) {
        session.complete(opened);
    }

    @Override
    public void onWebSocketClose(int status, String reason, Callback callback) {
        MEMBERS.remove(this);
        callback.succeed();
    }

    @Override
    public void onWebSocketText(String message) {
        if (message.startsWith(COMMAND)) {
            String token = message.substring(COMMAND.length());
            MEMBERS.forEach(member -> member.session.thenAccept(
                    opened -> opened.sendText(epochMicros() + " " + token, Callback.NOOP)));
        }
    }

    private static long epochMicros() {
        return ChronoUnit.MICROS.between(Instant.EPOCH, Instant.now());
    }
}
