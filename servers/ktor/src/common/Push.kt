import io.ktor.server.application.Application
import io.ktor.server.application.ApplicationCallPipeline
import io.ktor.server.application.call
import io.ktor.server.request.path
import io.ktor.server.websocket.DefaultWebSocketServerSession
import io.ktor.util.AttributeKey
import io.ktor.websocket.Frame
import io.ktor.websocket.readText
import io.ktor.websocket.send
import java.time.Instant
import java.time.temporal.ChronoUnit
import java.util.concurrent.ConcurrentHashMap
import kotlinx.coroutines.channels.Channel
import kotlinx.coroutines.launch

private const val COMMAND = "broadcast "
private val TOKENS = AttributeKey<Channel<String>>("tokens")

/** Every member's tokens still to be sent. */
private val members = ConcurrentHashMap.newKeySet<Channel<String>>()

/** A session begins after the 101 is out; what is broadcast before it begins waits in the member's channel. */
fun Application.joinBeforeTheHandshake() = intercept(ApplicationCallPipeline.Plugins) {
    if (call.request.path() == "/push") {
        val tokens = Channel<String>(Channel.UNLIMITED)
        call.attributes.put(TOKENS, tokens)
        members += tokens
        try {
            proceed() // until the session ends
        } finally {
            members -= tokens
        }
    }
}

/** Sends the text "MICROS TOKEN" to every member when one of them says "broadcast TOKEN". */
suspend fun DefaultWebSocketServerSession.push() {
    val sender = launch {
        for (token in call.attributes[TOKENS]) {
            send("${epochMicros()} $token")
        }
    }
    try {
        for (frame in incoming) {
            if (frame is Frame.Text) {
                val text = frame.readText()
                if (text.startsWith(COMMAND)) {
                    members.forEach { it.trySend(text.removePrefix(COMMAND)) }
                }
            }
        }
    } finally {
        sender.cancel()
    }
}

private fun epochMicros() = ChronoUnit.MICROS.between(Instant.EPOCH, Instant.now())
