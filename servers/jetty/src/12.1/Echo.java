import java.nio.ByteBuffer;
import org.eclipse.jetty.websocket.api.Callback;
import org.eclipse.jetty.websocket.api.Session;

/** Sends every message back as it came. The next binary message is asked for when this one is sent. */
public final class Echo extends Session.Listener.AbstractAutoDemanding {
    @Override
    public void onWebSocketText(String message) {
        getSession().sendText(message, Callback.NOOP);
    }

    @Override
    public void onWebSocketBinary(ByteBuffer payload, Callback callback) {
        getSession().sendBinary(payload, callback); // which gives the payload's buffer back
    }
}
