import io.ktor.server.application.Application
import io.ktor.server.cio.CIO
import io.ktor.server.engine.connector
import io.ktor.server.engine.embeddedServer
import io.ktor.server.netty.Netty

/** Ktor 3: an engine that is configured is given its address there too. */
fun serve(engine: String, host: String, port: Int, module: Application.() -> Unit) {
    when (engine) {
        "netty" -> embeddedServer(Netty, port, host, module = module).start(wait = true)
        "cio" -> {
            val server = embeddedServer(CIO, configure = {
                connector {
                    this.host = host
                    this.port = port
                }
                connectionIdleTimeoutSeconds = 3600
            }, module = module)
            server.start(wait = true)
        }
    }
}
