import io.netty.channel.EventLoopGroup;
import io.netty.channel.nio.NioEventLoopGroup;

/** Netty 4.1: the class of the event loops says what they are made of. */
final class Transport {
    static EventLoopGroup eventLoops(int threads) {
        return new NioEventLoopGroup(threads);
    }
}
