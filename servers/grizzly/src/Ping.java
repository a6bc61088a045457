import org.glassfish.grizzly.websockets.WebSocket;
import org.glassfish.grizzly.websockets.WebSocketApplication;

/** Answers the text Pong to the text Ping. */
final class Ping extends WebSocketApplication {
    @Override
    public void onMessage(WebSocket socket, String text) {
        if (text.equals("Ping")) {
            socket.send("Pong");
        }
    }
}
