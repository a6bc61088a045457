import io.vertx.core.DeploymentOptions;
import io.vertx.core.Vertx;
import io.vertx.core.impl.launcher.commands.VersionCommand;

/** Vert.x: one verticle, and so one event loop, for each of THREADS. Environment: HOST, PORT, THREADS. */
public final class Main {
    public static void main(String[] arguments) {
        if (arguments.length == 1 && arguments[0].equals("--version")) {
            System.out.println("vert.x " + VersionCommand.getVersion() + ", java " + System.getProperty("java.version"));
            return;
        }
        String threads = System.getenv("THREADS");
        int instances = threads == null ? Runtime.getRuntime().availableProcessors() : Integer.parseInt(threads);
        Vertx.vertx().deployVerticle(Server.class.getName(), new DeploymentOptions().setInstances(instances), deployed -> {
            if (deployed.failed()) {
                deployed.cause().printStackTrace();
                System.exit(1);
            }
        });
    }
}
