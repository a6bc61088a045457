import java.io.IOException;
import java.util.Arrays;
import javax.servlet.http.HttpServletRequest;
import javax.servlet.http.HttpServletResponse;
import org.eclipse.jetty.server.Request;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.server.ServerConnector;
import org.eclipse.jetty.server.handler.AbstractHandler;
import org.eclipse.jetty.server.handler.HandlerList;
import org.eclipse.jetty.util.Jetty;
import org.eclipse.jetty.websocket.api.WebSocketPolicy;
import org.eclipse.jetty.websocket.server.WebSocketHandler;
import org.eclipse.jetty.websocket.servlet.WebSocketServletFactory;

/** Embedded Jetty, with the number of threads it chooses itself. Environment: HOST, PORT. Argument: the listen backlog. */
public final class Main {
    private static final int LARGEST_MESSAGE = 16 * 1024 * 1024;
    private static final int HOUR_MS = 3_600_000;

    public static void main(String[] arguments) throws Exception {
        if (arguments.length == 1 && arguments[0].equals("--version")) {
            System.out.println("jetty " + Jetty.VERSION + ", java " + System.getProperty("java.version"));
            return;
        }
        Server server = new Server();
        ServerConnector connector = new ServerConnector(server);
        connector.setHost(System.getenv("HOST"));
        connector.setPort(Integer.parseInt(System.getenv("PORT")));
        connector.setIdleTimeout(HOUR_MS);
        if (arguments.length == 1) {
            connector.setAcceptQueueSize(Integer.parseInt(arguments[0]));
        }
        server.addConnector(connector);
        server.setHandler(new HandlerList(new Endpoints(), new Document()));
        server.start();
        server.join();
    }

    private static final class Endpoints extends WebSocketHandler {
        @Override
        public void configure(WebSocketServletFactory factory) {
            WebSocketPolicy policy = factory.getPolicy();
            policy.setIdleTimeout(HOUR_MS);
            policy.setMaxTextMessageSize(LARGEST_MESSAGE);
            policy.setMaxBinaryMessageSize(LARGEST_MESSAGE);
            factory.setCreator((request, response) -> switch (request.getRequestURI().getPath()) {
                case "/echo" -> new Echo();
                case "/ping" -> new Ping();
                case "/push" -> Push.join();
                default -> null;
            });
        }
    }

    private static final class Document extends AbstractHandler {
        @Override
        public void handle(
                String path, Request base, HttpServletRequest request, HttpServletResponse response) throws IOException {
            String size = request.getParameter("size");
            if (!path.equals("/doc") || size == null || !size.matches("\\d{1,8}")) {
                return; // 404
            }
            byte[] page = new byte[Integer.parseInt(size)];
            Arrays.fill(page, (byte) '.');
            response.setContentType("text/html");
            response.setContentLength(page.length);
            response.getOutputStream().write(page);
            base.setHandled(true);
        }
    }
}
