import io.undertow.websockets.core.AbstractReceiveListener;
import io.undertow.websockets.core.BufferedTextMessage;
import io.undertow.websockets.core.WebSocketChannel;
import io.undertow.websockets.core.WebSockets;

/** Answers the text Pong to the text Ping. */
final class Ping extends AbstractReceiveListener {
    @Override
    protected void onFullTextMessage(WebSocketChannel channel, BufferedTextMessage message) {
        if (message.getData().equals("Ping")) {
            WebSockets.sendText("Pong", channel, null);
        }
    }
}
