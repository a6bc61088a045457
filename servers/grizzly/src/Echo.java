import org.glassfish.grizzly.websockets.WebSocket;
import org.glassfish.grizzly.websockets.WebSocketApplication;

/** Sends everything back as it came; the fragments of a message stay fragments, since Grizzly does not put them together. */
final class Echo extends WebSocketApplication {
    @Override
    public void onMessage(WebSocket socket, String text) {
        socket.send(text);
    }

    @Override
    public void onMessage(WebSocket socket, byte[] bytes) {
        socket.send(bytes);
    }

    @Override
    public void onFragment(WebSocket socket, String fragment, boolean last) {
        socket.stream(last, fragment);
    }

    @Override
    public void onFragment(WebSocket socket, byte[] fragment, boolean last) {
        socket.stream(last, fragment, 0, fragment.length);
    }
}
