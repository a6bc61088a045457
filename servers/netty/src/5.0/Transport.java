import io.netty.channel.EventLoopGroup;
import io.netty.channel.ServerChannel;
import io.netty.channel.nio.NioEventLoopGroup;
import io.netty.channel.socket.nio.NioServerSocketChannel;
import java.util.function.IntFunction;

/** Netty 5.0.0.Alpha2: the class of the event loops says what they are made of. */
record Transport(IntFunction<EventLoopGroup> loops, Class<? extends ServerChannel> channel) {
    static Transport named(String name) {
        return switch (name) {
            case "nio" -> new Transport(NioEventLoopGroup::new, NioServerSocketChannel.class);
            default -> throw new IllegalArgumentException("no transport " + name);
        };
    }

    EventLoopGroup eventLoops(int threads) {
        return loops.apply(threads);
    }
}
