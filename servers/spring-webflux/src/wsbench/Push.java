package wsbench;

import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import org.springframework.web.reactive.socket.WebSocketHandler;
import org.springframework.web.reactive.socket.WebSocketMessage;
import org.springframework.web.reactive.socket.WebSocketSession;
import reactor.core.publisher.Mono;
import reactor.core.publisher.Sinks;

/** A member: sends the text "MICROS TOKEN" to every member when its client says "broadcast TOKEN". */
final class Push implements WebSocketHandler {
    private static final String COMMAND = "broadcast ";
    private static final Set<Push> MEMBERS = ConcurrentHashMap.newKeySet();

    /** Tokens still to be sent, also those of before the session, which begins after the 101 is out. */
    private final Sinks.Many<String> tokens = Sinks.many().unicast().onBackpressureBuffer();
    private final CompletableFuture<Void> opened = new CompletableFuture<>();

    /** A member from before its handshake; forgotten if that is not completed. */
    static Push join() {
        Push member = new Push();
        MEMBERS.add(member);
        member.opened.orTimeout(1, TimeUnit.MINUTES).exceptionally(gone -> {
            MEMBERS.remove(member);
            return null;
        });
        return member;
    }

    @Override
    public Mono<Void> handle(WebSocketSession session) {
        opened.complete(null);
        Mono<Void> sending = session.send(
                tokens.asFlux().map(token -> session.textMessage(epochMicros() + " " + token)));
        Mono<Void> receiving = session.receive()
                .map(WebSocketMessage::getPayloadAsText)
                .filter(text -> text.startsWith(COMMAND))
                .doOnNext(text -> broadcast(text.substring(COMMAND.length())))
                .doFinally(end -> {
                    MEMBERS.remove(this);
                    tokens.tryEmitComplete();
                })
                .then();
        return sending.and(receiving);
    }

    /** A sink takes one emission at a time and refuses others; who is refused tries again. */
    private static void broadcast(String token) {
        MEMBERS.forEach(member -> member.tokens.emitNext(
                token, (signal, result) -> result == Sinks.EmitResult.FAIL_NON_SERIALIZED));
    }

    private static long epochMicros() {
        return ChronoUnit.MICROS.between(Instant.EPOCH, Instant.now());
    }
}
