import io.netty.channel.EventLoopGroup;
import io.netty.channel.MultiThreadIoEventLoopGroup;
import io.netty.channel.nio.NioIoHandler;

/** Netty 4.2 separates the event loop from its kind of I/O. */
final class Transport {
    static EventLoopGroup eventLoops(int threads) {
        return new MultiThreadIoEventLoopGroup(threads, NioIoHandler.newFactory());
    }
}
