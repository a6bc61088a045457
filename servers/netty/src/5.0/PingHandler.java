import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.SimpleChannelInboundHandler;
import io.netty.handler.codec.http.websocketx.TextWebSocketFrame;
import java.io.IOException;

/** Answers the text Pong to the text Ping. */
final class PingHandler extends SimpleChannelInboundHandler<TextWebSocketFrame> {
    @Override
    protected void messageReceived(ChannelHandlerContext context, TextWebSocketFrame frame) {
        if (frame.text().equals("Ping")) {
            context.write(new TextWebSocketFrame("Pong"));
        }
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
