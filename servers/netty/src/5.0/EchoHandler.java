import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.SimpleChannelInboundHandler;
import io.netty.handler.codec.http.websocketx.WebSocketFrame;
import java.io.IOException;

/** Sends every frame back as it came; the fragments of a message stay fragments. */
final class EchoHandler extends SimpleChannelInboundHandler<WebSocketFrame> {
    @Override
    protected void messageReceived(ChannelHandlerContext context, WebSocketFrame frame) {
        context.write(frame.retain());
    }

    @Override
    public void channelReadComplete(ChannelHandlerContext context) {
        context.flush();
    }

    @Override
    public void exceptionCaught(ChannelHandlerContext context, Throwable cause) {
        if (!(cause instanceof IOException)) { // which says no more than that the client is gone
            cause.printStackTrace();
        }
        context.close();
    }
}
