package wsbench;

import java.io.IOException;
import org.springframework.web.socket.BinaryMessage;
import org.springframework.web.socket.TextMessage;
import org.springframework.web.socket.WebSocketSession;
import org.springframework.web.socket.handler.AbstractWebSocketHandler;

/** Sends every message back as it came. */
final class Echo extends AbstractWebSocketHandler {
    private static final int LARGEST_MESSAGE = 16 * 1024 * 1024;

    @Override
    public void afterConnectionEstablished(WebSocketSession session) {
        session.setTextMessageSizeLimit(LARGEST_MESSAGE);
        session.setBinaryMessageSizeLimit(LARGEST_MESSAGE);
    }

    @Override
    protected void handleTextMessage(WebSocketSession session, TextMessage message) throws IOException {
        session.sendMessage(message);
    }

    @Override
    protected void handleBinaryMessage(WebSocketSession session, BinaryMessage message) throws IOException {
        session.sendMessage(message);
    }
}
