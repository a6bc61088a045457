import static io.netty.handler.codec.http.HttpResponseStatus.BAD_REQUEST;
import static io.netty.handler.codec.http.HttpResponseStatus.NOT_FOUND;
import static io.netty.handler.codec.http.HttpResponseStatus.OK;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import io.netty.channel.ChannelFuture;
import io.netty.channel.ChannelFutureListener;
import io.netty.channel.ChannelHandler;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelPipeline;
import io.netty.channel.SimpleChannelInboundHandler;
import io.netty.handler.codec.http.DefaultFullHttpResponse;
import io.netty.handler.codec.http.FullHttpRequest;
import io.netty.handler.codec.http.FullHttpResponse;
import io.netty.handler.codec.http.HttpHeaderNames;
import io.netty.handler.codec.http.HttpResponseStatus;
import io.netty.handler.codec.http.HttpUtil;
import io.netty.handler.codec.http.HttpVersion;
import io.netty.handler.codec.http.QueryStringDecoder;
import io.netty.handler.codec.http.websocketx.WebSocketServerProtocolHandler;
import io.netty.handler.codec.http.websocketx.extensions.WebSocketServerExtensionHandler;
import io.netty.handler.codec.http.websocketx.extensions.compression.PerMessageDeflateServerExtensionHandshaker;
import java.io.IOException;
import java.util.Arrays;
import java.util.List;

/** Serves documents, and makes room in the pipeline for the WebSocket endpoint that is asked for. */
final class Router extends SimpleChannelInboundHandler<FullHttpRequest> {
    private static final int LARGEST_FRAME = 16 * 1024 * 1024;
    private static final boolean DEFLATE = System.getenv("DEFLATE") != null;

    @Override
    protected void channelRead0(ChannelHandlerContext context, FullHttpRequest request) {
        QueryStringDecoder target = new QueryStringDecoder(request.uri());
        switch (target.path()) {
            case "/doc" -> document(context, request, target.parameters().get("size"));
            case "/echo" -> upgrade(context, request, new EchoHandler());
            case "/ping" -> upgrade(context, request, new PingHandler());
            case "/push" -> upgrade(context, request, new PushHandler());
            default -> reply(context, request, NOT_FOUND, Unpooled.EMPTY_BUFFER);
        }
    }

    private static void upgrade(ChannelHandlerContext context, FullHttpRequest request, ChannelHandler endpoint) {
        ChannelPipeline pipeline = context.pipeline();
        if (DEFLATE) {
            // WebSocketServerCompressionHandler's settings, but a client may ask for server_no_context_takeover.
            pipeline.addLast(new WebSocketServerExtensionHandler(
                    new PerMessageDeflateServerExtensionHandshaker(6, false, 15, true, false)));
        }
        pipeline.addLast(new WebSocketServerProtocolHandler(request.uri(), null, DEFLATE, LARGEST_FRAME), endpoint);
        context.fireChannelRead(request.retain());
        context.pipeline().remove(context.handler());
    }

    private static void document(ChannelHandlerContext context, FullHttpRequest request, List<String> size) {
        if (size == null || !size.get(0).matches("\\d{1,8}")) {
            reply(context, request, BAD_REQUEST, Unpooled.EMPTY_BUFFER);
            return;
        }
        byte[] page = new byte[Integer.parseInt(size.get(0))];
        Arrays.fill(page, (byte) '.');
        reply(context, request, OK, Unpooled.wrappedBuffer(page));
    }

    private static void reply(
            ChannelHandlerContext context, FullHttpRequest request, HttpResponseStatus status, ByteBuf content) {
        FullHttpResponse response = new DefaultFullHttpResponse(HttpVersion.HTTP_1_1, status, content);
        boolean persistent = HttpUtil.isKeepAlive(request);
        response.headers().set(HttpHeaderNames.CONTENT_TYPE, "text/html");
        HttpUtil.setContentLength(response, content.readableBytes());
        // An HTTP/1.0 client has to be told; in 1.1 persistence goes without saying, and HttpUtil would leave the header out.
        response.headers().set(HttpHeaderNames.CONNECTION, persistent ? "keep-alive" : "close");
        ChannelFuture sent = context.write(response);
        if (!persistent) {
            sent.addListener(ChannelFutureListener.CLOSE);
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
