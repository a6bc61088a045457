package wsbench;

import java.util.Arrays;
import java.util.Map;
import java.util.Optional;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.SpringBootVersion;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Scope;
import org.springframework.http.MediaType;
import org.springframework.web.reactive.HandlerMapping;
import org.springframework.web.reactive.function.server.RouterFunction;
import org.springframework.web.reactive.function.server.RouterFunctions;
import org.springframework.web.reactive.function.server.ServerRequest;
import org.springframework.web.reactive.function.server.ServerResponse;
import org.springframework.web.reactive.handler.SimpleUrlHandlerMapping;
import org.springframework.web.reactive.socket.WebSocketHandler;
import org.springframework.web.reactive.socket.WebSocketMessage;
import org.springframework.web.reactive.socket.server.WebSocketService;
import org.springframework.web.reactive.socket.server.support.HandshakeWebSocketService;
import org.springframework.web.reactive.socket.server.support.WebSocketHandlerAdapter;
import org.springframework.web.reactive.socket.server.upgrade.ReactorNettyRequestUpgradeStrategy;
import reactor.core.publisher.Mono;
import reactor.netty.http.server.WebsocketServerSpec;

/** Spring WebFlux on Reactor Netty, with the number of threads it chooses itself. Environment: HOST, PORT. */
@SpringBootApplication
public class Main {
    private static final int LARGEST_FRAME = 16 * 1024 * 1024;

    public static void main(String[] arguments) {
        if (arguments.length == 1 && arguments[0].equals("--version")) {
            String boot = SpringBootVersion.getVersion();
            System.out.println("spring boot " + boot + ", java " + System.getProperty("java.version"));
            return;
        }
        SpringApplication.run(Main.class, arguments);
    }

    @Bean
    HandlerMapping endpoints() {
        int beforeTheRouter = -1;
        return new SimpleUrlHandlerMapping(Map.of("/echo", "echo", "/ping", "ping", "/push", "push"), beforeTheRouter);
    }

    @Bean
    WebSocketHandler echo() {
        return session -> session.send(
                session.receive().filter(Main::isData).doOnNext(WebSocketMessage::retain));
    }

    /** Spring hands a client's pongs over as well; they are not to be returned. */
    private static boolean isData(WebSocketMessage message) {
        return message.getType() == WebSocketMessage.Type.TEXT || message.getType() == WebSocketMessage.Type.BINARY;
    }

    @Bean
    WebSocketHandler ping() {
        return session -> session.send(session.receive()
                .filter(message -> message.getPayloadAsText().equals("Ping"))
                .map(message -> session.textMessage("Pong")));
    }

    /** A handler for every connection, made when its request is mapped: before the handshake. */
    @Bean
    @Scope("prototype")
    WebSocketHandler push() {
        return Push.join();
    }

    @Bean
    WebSocketHandlerAdapter webSocketHandlerAdapter() {
        return new WebSocketHandlerAdapter(webSocketService());
    }

    private static WebSocketService webSocketService() {
        return new HandshakeWebSocketService(new ReactorNettyRequestUpgradeStrategy(
                () -> WebsocketServerSpec.builder().maxFramePayloadLength(LARGEST_FRAME)));
    }

    @Bean
    RouterFunction<ServerResponse> documents() {
        return RouterFunctions.route().GET("/doc", Main::document).build();
    }

    private static Mono<ServerResponse> document(ServerRequest request) {
        Optional<String> size = request.queryParam("size").filter(digits -> digits.matches("\\d{1,8}"));
        if (size.isEmpty()) {
            return ServerResponse.badRequest().build();
        }
        byte[] page = new byte[Integer.parseInt(size.get())];
        Arrays.fill(page, (byte) '.');
        return ServerResponse.ok().contentType(MediaType.TEXT_HTML).bodyValue(page);
    }
}
