package wsbench;

import org.springframework.boot.SpringApplication;
import org.springframework.boot.SpringBootVersion;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.messaging.simp.config.MessageBrokerRegistry;
import org.springframework.web.socket.config.annotation.EnableWebSocketMessageBroker;
import org.springframework.web.socket.config.annotation.StompEndpointRegistry;
import org.springframework.web.socket.config.annotation.WebSocketMessageBrokerConfigurer;

/** Spring's simple broker: STOMP over WebSocket on Tomcat. Environment: HOST, PORT. */
@SpringBootApplication
@EnableWebSocketMessageBroker
public class Main implements WebSocketMessageBrokerConfigurer {
    public static void main(String[] arguments) {
        if (arguments.length == 1 && arguments[0].equals("--version")) {
            String boot = SpringBootVersion.getVersion();
            System.out.println("spring boot " + boot + ", java " + System.getProperty("java.version"));
            return;
        }
        SpringApplication.run(Main.class, arguments);
    }

    @Override
    public void registerStompEndpoints(StompEndpointRegistry registry) {
        registry.setPreserveReceiveOrder(true).addEndpoint("/ws");
    }

    @Override
    public void configureMessageBroker(MessageBrokerRegistry registry) {
        registry.setPreservePublishOrder(true).enableSimpleBroker("/topic");
    }
}
