import org.eclipse.jetty.websocket.api.Callback;
import org.eclipse.jetty.websocket.api.Session;

/** Answers the text Pong to the text Ping. */
public final class Ping extends Session.Listener.AbstractAutoDemanding {
    @Override
    public void onWebSocketText(String message) {
        if (message.equals("Ping")) {
            getSession().sendText("Pong", Callback.NOOP);
        }
    }
}
