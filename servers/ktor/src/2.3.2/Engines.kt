import io.ktor.server.application.Application
import io.ktor.server.cio.CIO
import io.ktor.server.engine.embeddedServer
import io.ktor.server.netty.Netty

/** Ktor 2. */
fun serve(engine: String, host: String, port: Int, module: Application.() -> Unit) {
    when (engine) {
        "netty" -> embeddedServer(Netty, port, host, module = module).start(wait = true)
        "cio" -> embeddedServer(CIO, port, host, configure = { connectionIdleTimeoutSeconds = 3600 }, module = module)
            .start(wait = true)
    }
}
