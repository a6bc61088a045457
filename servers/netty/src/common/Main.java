import io.netty.bootstrap.ServerBootstrap;
import io.netty.channel.Channel;
import io.netty.channel.ChannelInitializer;
import io.netty.channel.ChannelPipeline;
import io.netty.channel.EventLoopGroup;
import io.netty.handler.codec.http.HttpObjectAggregator;
import io.netty.handler.codec.http.HttpServerCodec;
import io.netty.handler.ssl.SslContext;
import io.netty.handler.ssl.SslContextBuilder;
import io.netty.util.Version;
import java.io.File;
import javax.net.ssl.SSLException;

/**
 * Netty over the transport that is the argument (nio, epoll, io_uring): one thread accepts, THREADS event loops do the rest.
 * Environment: HOST, PORT, THREADS, TLS_CERT, TLS_KEY, DEFLATE.
 */
public final class Main {
    public static void main(String[] arguments) throws InterruptedException, SSLException {
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
                .childHandler(new Pipeline(tls()))
                .bind(System.getenv("HOST"), Integer.parseInt(System.getenv("PORT")))
                .sync()
                .channel()
                .closeFuture()
                .sync();
    }

    /** Null if the server is not asked for TLS. */
    private static SslContext tls() throws SSLException {
        String certificate = System.getenv("TLS_CERT");
        return certificate == null
                ? null
                : SslContextBuilder.forServer(new File(certificate), new File(System.getenv("TLS_KEY"))).build();
    }

    private static final class Pipeline extends ChannelInitializer<Channel> {
        private final SslContext tls;

        Pipeline(SslContext tls) {
            this.tls = tls;
        }

        @Override
        protected void initChannel(Channel channel) {
            ChannelPipeline pipeline = channel.pipeline();
            if (tls != null) {
                pipeline.addLast(tls.newHandler(channel.alloc()));
            }
            pipeline.addLast(new HttpServerCodec(), new HttpObjectAggregator(65536), new Router());
        }
    }
}
