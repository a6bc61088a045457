import io.netty.channel.Channel;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.SimpleChannelInboundHandler;
import io.netty.channel.group.ChannelGroup;
import io.netty.channel.group.DefaultChannelGroup;
import io.netty.handler.codec.http.websocketx.TextWebSocketFrame;
import io.netty.util.concurrent.GlobalEventExecutor;
import java.io.IOException;
import java.time.Instant;
import java.time.temporal.ChronoUnit;

/** Sends the text "MICROS TOKEN" to every member when one of them says "broadcast TOKEN". */
final class PushHandler extends SimpleChannelInboundHandler<TextWebSocketFrame> {
    private static final String COMMAND = "broadcast ";

    /** Forgets a channel when it closes. */
    private static final ChannelGroup MEMBERS = new DefaultChannelGroup(GlobalEventExecutor.INSTANCE);

    /**
     * A member before the handshake: both happen in one task of the channel's event loop, so what another loop sends meanwhile waits until
     * the 101 is out, and whoever has seen the 101 is a member.
     */
    @Override
    public void handlerAdded(ChannelHandlerContext context) {
        MEMBERS.add(context.channel());
    }

    @Override
    protected void messageReceived(ChannelHandlerContext context, TextWebSocketFrame frame) {
        String text = frame.text();
        if (text.startsWith(COMMAND)) {
            String token = text.substring(COMMAND.length());
            for (Channel member : MEMBERS) {
                member.writeAndFlush(new TextWebSocketFrame(epochMicros() + " " + token));
            }
        }
    }

    private static long epochMicros() {
        return ChronoUnit.MICROS.between(Instant.EPOCH, Instant.now());
    }

    @Override
    public void exceptionCaught(ChannelHandlerContext context, Throwable cause) {
        if (!(cause instanceof IOException)) { // which says no more than that the client is gone
            cause.printStackTrace();
        }
        context.close();
    }
}
