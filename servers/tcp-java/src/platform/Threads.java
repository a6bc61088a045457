import java.util.concurrent.ThreadFactory;

/** Threads of the operating system. */
final class Threads {
    static final ThreadFactory FACTORY = Thread::new;
}
