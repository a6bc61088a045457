import java.nio.ByteBuffer;
import org.eclipse.jetty.websocket.api.WebSocketAdapter;

/** Sends every message back as it came, without waiting until it is sent. */
public final class Echo extends WebSocketAdapter {
    @Override
    public void onWebSocketText(String message) {
        getRemote().sendStringByFuture(message);
    }

    @Override
    public void onWebSocketBinary(byte[] payload, int offset, int length) {
        getRemote().sendBytesByFuture(ByteBuffer.wrap(payload, offset, length));
    }
}
