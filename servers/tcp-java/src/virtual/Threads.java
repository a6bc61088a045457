import java.util.concurrent.ThreadFactory;

/** Threads of Java alone, carried by a few of the operating system (Java 21). */
final class Threads {
    static final ThreadFactory FACTORY = Thread.ofVirtual().factory();
}
