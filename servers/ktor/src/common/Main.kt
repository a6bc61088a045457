import io.ktor.http.ContentType
import io.ktor.http.HttpStatusCode
import io.ktor.server.application.Application
import io.ktor.server.application.call
import io.ktor.server.application.install
import io.ktor.server.response.respond
import io.ktor.server.response.respondBytes
import io.ktor.server.routing.get
import io.ktor.server.routing.routing
import io.ktor.server.websocket.WebSockets
import io.ktor.server.websocket.webSocket
import io.ktor.websocket.Frame
import io.ktor.websocket.readBytes
import io.ktor.websocket.readText
import io.ktor.websocket.send

/** Ktor, over Netty or over CIO as the argument says. Environment: HOST, PORT; of the study's variant also PING_MS and TIMEOUT_MS. */
fun main(arguments: Array<String>) {
    if (arguments.contentEquals(arrayOf("--version"))) {
        val ktor = Application::class.java.`package`.implementationVersion
        println("ktor $ktor, kotlin ${KotlinVersion.CURRENT}, java ${System.getProperty("java.version")}")
        return
    }
    // Beside Ktor's own hook, which would wait for the clients.
    Runtime.getRuntime().addShutdownHook(Thread { Runtime.getRuntime().halt(143) })
    serve(arguments[0], System.getenv("HOST"), System.getenv("PORT").toInt(), Application::endpoints)
}

fun Application.endpoints() {
    install(WebSockets) {
        System.getenv("PING_MS")?.let { pingPeriodMillis = it.toLong() }
        System.getenv("TIMEOUT_MS")?.let { timeoutMillis = it.toLong() }
    }
    joinBeforeTheHandshake()
    routing {
        get("/doc") {
            val size = call.request.queryParameters["size"]?.toIntOrNull()
            if (size == null || size !in 0..99_999_999) {
                call.respond(HttpStatusCode.BadRequest)
            } else {
                call.respondBytes(ByteArray(size) { '.'.code.toByte() }, ContentType.Text.Html)
            }
        }
        webSocket("/echo") {
            for (frame in incoming) {
                when (frame) {
                    is Frame.Text -> send(frame.readText())
                    is Frame.Binary -> send(frame.readBytes())
                    else -> {}
                }
            }
        }
        webSocket("/ping") {
            for (frame in incoming) {
                if (frame is Frame.Text && frame.readText() == "Ping") {
                    send("Pong")
                }
            }
        }
        webSocket("/push") { push() }
    }
}
