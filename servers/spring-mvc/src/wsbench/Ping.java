package wsbench;

import java.io.IOException;
import org.springframework.web.socket.TextMessage;
import org.springframework.web.socket.WebSocketSession;
import org.springframework.web.socket.handler.TextWebSocketHandler;

/** Answers the text Pong to the text Ping. */
final class Ping extends TextWebSocketHandler {
    @Override
    protected void handleTextMessage(WebSocketSession session, TextMessage message) throws IOException {
        if (message.getPayload().equals("Ping")) {
            session.sendMessage(new TextMessage("Pong"));
        }
    }
}
