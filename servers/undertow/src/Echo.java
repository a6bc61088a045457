import io.undertow.websockets.core.AbstractReceiveListener;
import io.undertow.websockets.core.BufferedBinaryMessage;
import io.undertow.websockets.core.BufferedTextMessage;
import io.undertow.websockets.core.WebSocketCallback;
import io.undertow.websockets.core.WebSocketChannel;
import io.undertow.websockets.core.WebSockets;
import java.nio.ByteBuffer;
import org.xnio.Pooled;

/** Sends every message back as it came. */
final class Echo extends AbstractReceiveListener {
    @Override
    protected void onFullTextMessage(WebSocketChannel channel, BufferedTextMessage message) {
        WebSockets.sendText(message.getData(), channel, null);
    }

    @Override
    protected void onFullBinaryMessage(WebSocketChannel channel, BufferedBinaryMessage message) {
        Pooled<ByteBuffer[]> data = message.getData();
        WebSockets.sendBinary(data.getResource(), channel, new Release(data));
    }

    /** The buffers belong to a pool and are sent from where they are. */
    private record Release(Pooled<ByteBuffer[]> data) implements WebSocketCallback<Void> {
        @Override
        public void complete(WebSocketChannel channel, Void context) {
            data.free();
        }

        @Override
        public void onError(WebSocketChannel channel, Void context, Throwable cause) {
            data.free();
        }
    }
}
