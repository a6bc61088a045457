import io.netty.bootstrap.ServerBootstrap;
import io.netty.channel.Channel;
import io.netty.channel.ChannelInitializer;
import io.netty.channel.EventLoopGroup;
import io.netty.handler.codec.http.HttpObjectAggregator;
import io.netty.handler.codec.http.HttpServerCodec;
import io.netty.util.Version;

/**
 * Netty over the transport that is the argument (nio, epoll, io_uring): one thread accepts, THREADS event loops do the rest.
 * Environment: HOST, PORT, THREADS.
 */
public final class Main {
    public static void main(String[] arguments) throws InterruptedException {
        if (arguments.length == 1 && arguments[0].equals("--version")) {
            String netty = Version.identify().get("netty-codec-http").artifactVersion();
            System.out.println("netty " + netty + ", java " + System.getProperty("java.version"));
            return;
        }
        String threads = System.getenv("THREADS");
        Transport transport = Transport.named(arguments[0]);
        EventLoopGroup acceptor = transport.eventLoops(1);
        EventLoopGroup workers = transport.eventLoops(threads == null ? 0 : Integer.parseInt(threads));
        new ServerBootstrap()
                .group(acceptor, workers)
                .channel(transport.channel())
                .childHandler(new Pipeline())
                .bind(System.getenv("HOST"), Integer.parseInt(System.getenv("PORT")))
                .sync()
                .channel()
                .closeFuture()
                .sync();
    }

    private static final class Pipeline extends ChannelInitializer<Channel> {
        @Override
        protected void initChannel(Channel channel) {
            channel.pipeline().addLast(new HttpServerCodec(), new HttpObjectAggregator(65536), new Router());
        }
    }
}
