import java.time.Instant
import java.time.temporal.ChronoUnit
import java.util.concurrent.ConcurrentHashMap
import org.apache.pekko.NotUsed
import org.apache.pekko.actor.ActorSystem
import org.apache.pekko.http.scaladsl.model.ws.{Message, TextMessage}
import org.apache.pekko.stream.BoundedSourceQueue
import org.apache.pekko.stream.scaladsl.{Flow, Sink, Source}

/** Sends the text "MICROS TOKEN" to every member when one of them says "broadcast TOKEN". */
object Push {
  private val Command = "broadcast "

  /** Tokens that a slow receiver may be behind before it loses some. */
  private val Backlog = 65536

  private val members = ConcurrentHashMap.newKeySet[BoundedSourceQueue[String]]()

  /** A member from before its handshake: the queue takes tokens from now on, and ends if nobody comes to read it. */
  def join(whole: Flow[Message, Message, NotUsed])(implicit system: ActorSystem): Flow[Message, Message, NotUsed] = {
    import system.dispatcher
    val ((member, ended), tokens) = Source.queue[String](Backlog).watchTermination()((_, _)).preMaterialize()
    members.add(member)
    ended.onComplete(_ => members.remove(member))
    val sending = tokens.map(token => TextMessage(s"$epochMicros $token"))
    val receiving = whole.to(Sink.foreach {
      case TextMessage.Strict(text) if text.startsWith(Command) =>
        members.forEach(other => other.offer(text.stripPrefix(Command)))
      case _ =>
    })
    Flow.fromSinkAndSourceCoupled(receiving, sending)
  }

  private def epochMicros: Long = ChronoUnit.MICROS.between(Instant.EPOCH, Instant.now())
}
