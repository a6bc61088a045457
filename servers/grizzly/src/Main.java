import java.io.IOException;
import java.util.Arrays;
import org.glassfish.grizzly.Grizzly;
import org.glassfish.grizzly.http.server.HttpHandler;
import org.glassfish.grizzly.http.server.HttpServer;
import org.glassfish.grizzly.http.server.NetworkListener;
import org.glassfish.grizzly.http.server.Request;
import org.glassfish.grizzly.http.server.Response;
import org.glassfish.grizzly.http.util.HttpStatus;
import org.glassfish.grizzly.websockets.WebSocketAddOn;
import org.glassfish.grizzly.websockets.WebSocketEngine;

/** Grizzly's embedded HTTP server, with the number of threads it chooses itself. Environment: HOST, PORT. */
public final class Main {
    private static final int HOUR_S = 3600;

    public static void main(String[] arguments) throws Exception {
        if (arguments.length == 1 && arguments[0].equals("--version")) {
            System.out.println("grizzly " + Grizzly.getDotedVersion() + ", java " + System.getProperty("java.version"));
            return;
        }
        WebSocketAddOn webSockets = new WebSocketAddOn();
        webSockets.setTimeoutInSeconds(HOUR_S);
        NetworkListener listener =
                new NetworkListener("wsbench", System.getenv("HOST"), Integer.parseInt(System.getenv("PORT")));
        listener.getKeepAlive().setIdleTimeoutInSeconds(HOUR_S);
        listener.registerAddOn(webSockets);
        WebSocketEngine.getEngine().register("", "/echo", new Echo());
        WebSocketEngine.getEngine().register("", "/ping", new Ping());
        WebSocketEngine.getEngine().register("", "/push", new Push());
        HttpServer server = new HttpServer();
        server.addListener(listener);
        server.getServerConfiguration().addHttpHandler(new Document(), "/doc");
        server.start();
        Thread.currentThread().join(); // Grizzly's own threads are daemons
    }

    private static final class Document extends HttpHandler {
        @Override
        public void service(Request request, Response response) throws IOException {
            String size = request.getParameter("size");
            if (size == null || !size.matches("\\d{1,8}")) {
                response.setStatus(HttpStatus.BAD_REQUEST_400);
                return;
            }
            byte[] page = new byte[Integer.parseInt(size)];
            Arrays.fill(page, (byte) '.');
            response.setContentType("text/html");
            response.setContentLength(page.length);
            response.getOutputStream().write(page);
        }
    }
}
