import io.vertx.core.DeploymentOptions;
import io.vertx.core.Vertx;
import io.vertx.core.impl.VertxImpl;

/** Vert.x: one verticle, and so one event loop, for each of THREADS. Environment: HOST, PORT,
 * THREADS, TLS_CERT, TLS_KEY, DEFLATE. */
public final class Main {
    public static void main(String[] arguments) {
        if (arguments.length == 1 && arguments[0].equals("--version")) {
            System.out.println("vert.x " + VertxImpl.version() + ", java " + System.getProperty("java.version"));
            return;
        }
        String threads = System.getenv("THREADS");
        int instances = threads == null ? Runtime.getRuntime().availableProcessors() : Integer.parseInt(threads);
        Vertx.vertx()
                .deployVerticle(Server::new, new DeploymentOptions().setInstances(instances))
                .onFailure(cause -> {
                    cause.printStackTrace();
                    System.exit(1);
                });
    }
}
