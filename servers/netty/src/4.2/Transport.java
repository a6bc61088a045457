import io.netty.channel.EventLoopGroup;
import io.netty.channel.IoHandlerFactory;
import io.netty.channel.MultiThreadIoEventLoopGroup;
import io.netty.channel.ServerChannel;
import io.netty.channel.epoll.EpollIoHandler;
import io.netty.channel.epoll.EpollServerSocketChannel;
import io.netty.channel.nio.NioIoHandler;
import io.netty.channel.socket.nio.NioServerSocketChannel;
import io.netty.channel.uring.IoUringIoHandler;
import io.netty.channel.uring.IoUringServerSocketChannel;

/** Netty 4.2 separates the event loop from its kind of I/O. */
record Transport(IoHandlerFactory io, Class<? extends ServerChannel> channel) {
    static Transport named(String name) {
        return switch (name) {
            case "nio" -> new Transport(NioIoHandler.newFactory(), NioServerSocketChannel.class);
            case "epoll" -> new Transport(EpollIoHandler.newFactory(), EpollServerSocketChannel.class);
            case "io_uring" -> new Transport(IoUringIoHandler.newFactory(), IoUringServerSocketChannel.class);
            default -> throw new IllegalArgumentException("no transport " + name);
        };
    }

    EventLoopGroup eventLoops(int threads) {
        return new MultiThreadIoEventLoopGroup(threads, io);
    }
}
