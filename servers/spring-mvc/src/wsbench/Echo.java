package wsbench;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import org.springframework.web.socket.BinaryMessage;
import org.springframework.web.socket.CloseStatus;
import org.springframework.web.socket.TextMessage;
import org.springframework.web.socket.WebSocketSession;
import org.springframework.web.socket.handler.AbstractWebSocketHandler;

/** Sends every message of one connection back as it came: whole, also if it is larger than Tomcat's buffer. */
final class Echo extends AbstractWebSocketHandler {
    private static final int LARGEST_MESSAGE = 16 * 1024 * 1024;

    private final StringBuilder text = new StringBuilder();
    private final ByteArrayOutputStream binary = new ByteArrayOutputStream();

    /** Tomcat's buffer for whole messages is as large as the largest from the first message on, so it gives out parts. */
    @Override
    public boolean supportsPartialMessages() {
        return true;
    }

    @Override
    protected void handleTextMessage(WebSocketSession session, TextMessage part) throws IOException {
        if (part.isLast() && text.isEmpty()) {
            session.sendMessage(part);
        } else if (text.length() + part.getPayload().length() > LARGEST_MESSAGE) {
            session.close(CloseStatus.TOO_BIG_TO_PROCESS);
        } else {
            text.append(part.getPayload());
            if (part.isLast()) {
                session.sendMessage(new TextMessage(text));
                text.setLength(0);
                text.trimToSize();
            }
        }
    }

    @Override
    protected void handleBinaryMessage(WebSocketSession session, BinaryMessage part) throws IOException {
        ByteBuffer payload = part.getPayload();
        if (part.isLast() && binary.size() == 0) {
            session.sendMessage(part);
        } else if (binary.size() + payload.remaining() > LARGEST_MESSAGE) {
            session.close(CloseStatus.TOO_BIG_TO_PROCESS);
        } else {
            byte[] bytes = new byte[payload.remaining()];
            payload.get(bytes);
            binary.write(bytes, 0, bytes.length);
            if (part.isLast()) {
                session.sendMessage(new BinaryMessage(binary.toByteArray()));
                binary.reset();
            }
        }
    }
}
