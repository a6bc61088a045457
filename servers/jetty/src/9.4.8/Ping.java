import org.eclipse.jetty.websocket.api.WebSocketAdapter;

/** Answers the text Pong to the text Ping. */
public final class Ping extends WebSocketAdapter {
    @Override
    public void onWebSocketText(String message) {
        if (message.equals("Ping")) {
            getRemote().sendStringByFuture("Pong");
        }
    }
}
