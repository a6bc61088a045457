package wsbench;

import java.util.Arrays;
import java.util.concurrent.Executor;
import org.springframework.beans.factory.annotation.Qualifier;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.SpringBootVersion;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.http.MediaType;
import org.springframework.http.ResponseEntity;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.RequestParam;
import org.springframework.web.bind.annotation.RestController;
import org.springframework.web.socket.config.annotation.EnableWebSocket;
import org.springframework.web.socket.config.annotation.WebSocketConfigurer;
import org.springframework.web.socket.config.annotation.WebSocketHandlerRegistry;
import org.springframework.web.socket.handler.PerConnectionWebSocketHandler;

/** Spring MVC on Tomcat. Environment: HOST, PORT. */
@SpringBootApplication
@EnableWebSocket
@RestController
public class Main implements WebSocketConfigurer {
    private final Executor executor;

    Main(@Qualifier("applicationTaskExecutor") Executor executor) {
        this.executor = executor;
    }

    public static void main(String[] arguments) {
        if (arguments.length == 1 && arguments[0].equals("--version")) {
            String boot = SpringBootVersion.getVersion();
            System.out.println("spring boot " + boot + ", java " + System.getProperty("java.version"));
            return;
        }
        SpringApplication.run(Main.class, arguments);
    }

    @Override
    public void registerWebSocketHandlers(WebSocketHandlerRegistry registry) {
        registry.addHandler(new PerConnectionWebSocketHandler(Echo.class, true), "/echo");
        registry.addHandler(new Ping(), "/ping");
        registry.addHandler(new Push(executor), "/push").addInterceptors(new Push.Join());
    }

    @GetMapping("/doc")
    ResponseEntity<byte[]> document(@RequestParam("size") int size) {
        byte[] page = new byte[size];
        Arrays.fill(page, (byte) '.');
        return ResponseEntity.ok().contentType(MediaType.TEXT_HTML).body(page);
    }
}
