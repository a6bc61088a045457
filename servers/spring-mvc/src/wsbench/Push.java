package wsbench;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executor;
import java.util.concurrent.TimeUnit;
import org.springframework.http.server.ServerHttpRequest;
import org.springframework.http.server.ServerHttpResponse;
import org.springframework.web.socket.CloseStatus;
import org.springframework.web.socket.TextMessage;
import org.springframework.web.socket.WebSocketHandler;
import org.springframework.web.socket.WebSocketSession;
import org.springframework.web.socket.handler.ConcurrentWebSocketSessionDecorator;
import org.springframework.web.socket.handler.TextWebSocketHandler;
import org.springframework.web.socket.server.HandshakeInterceptor;

/** Sends the text "MICROS TOKEN" to every member when one of them says "broadcast TOKEN". */
final class Push extends TextWebSocketHandler {
    private static final String COMMAND = "broadcast ";
    private static final String MEMBER = "member";

    /** The limits of Spring's own message broker. */
    private static final int SEND_TIME_LIMIT_MS = 10_000;
    private static final int BUFFER_SIZE_LIMIT = 512 * 1024;

    private static final Set<CompletableFuture<WebSocketSession>> MEMBERS = ConcurrentHashMap.newKeySet();

    /** Sending blocks, so it is not the receiving thread that does it. */
    private final Executor executor;

    Push(Executor executor) {
        this.executor = executor;
    }

    /** A client is a member from before its handshake; a broadcast that comes before the session is sent when there is one. */
    static final class Join implements HandshakeInterceptor {
        @Override
        public boolean beforeHandshake(
                ServerHttpRequest request,
                ServerHttpResponse response,
                WebSocketHandler handler,
                Map<String, Object> attributes) {
            CompletableFuture<WebSocketSession> member = new CompletableFuture<>();
            attributes.put(MEMBER, member);
            MEMBERS.add(member);
            member.orTimeout(1, TimeUnit.MINUTES).exceptionally(gone -> {
                MEMBERS.remove(member);
                return null;
            });
            return true;
        }

        @Override
        public void afterHandshake(
                ServerHttpRequest request, ServerHttpResponse response, WebSocketHandler handler, Exception failure) {}
    }

    @Override
    public void afterConnectionEstablished(WebSocketSession session) {
        memberOf(session).complete(
                new ConcurrentWebSocketSessionDecorator(session, SEND_TIME_LIMIT_MS, BUFFER_SIZE_LIMIT));
    }

    @Override
    public void afterConnectionClosed(WebSocketSession session, CloseStatus status) {
        MEMBERS.remove(memberOf(session));
    }

    @Override
    protected void handleTextMessage(WebSocketSession sender, TextMessage message) {
        String text = message.getPayload();
        if (text.startsWith(COMMAND)) {
            String token = text.substring(COMMAND.length());
            MEMBERS.forEach(member -> member.thenAcceptAsync(session -> send(session, token), executor));
        }
    }

    private static void send(WebSocketSession session, String token) {
        try {
            session.sendMessage(new TextMessage(epochMicros() + " " + token));
        } catch (IOException gone) {
            throw new UncheckedIOException(gone); // nobody asks
        }
    }

    @SuppressWarnings("unchecked")
    private static CompletableFuture<WebSocketSession> memberOf(WebSocketSession session) {
        return (CompletableFuture<WebSocketSession>) session.getAttributes().get(MEMBER);
    }

    private static long epochMicros() {
        return ChronoUnit.MICROS.between(Instant.EPOCH, Instant.now());
    }
}
