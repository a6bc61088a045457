import java.time.Instant
import java.time.temporal.ChronoUnit
import java.util.concurrent.ConcurrentHashMap
import play.api.libs.concurrent.Execution.Implicits.defaultContext
import play.api.libs.concurrent.Promise.timeout
import play.api.libs.iteratee.Concurrent.{Channel, unicast}
import play.api.libs.iteratee.{Enumerator, Iteratee}
import scala.collection.JavaConversions._
import scala.concurrent.Promise
import scala.concurrent.duration._

/** Sends the text "MICROS TOKEN" to every member when one of them says "broadcast TOKEN". */
object Push {
  private val Command = "broadcast "
  private val members = ConcurrentHashMap.newKeySet[Promise[Channel[String]]]()

  /** A member from before its handshake, forgotten if that is not completed; what comes before it can be sent to is sent then. */
  def join(): (Iteratee[String, Unit], Enumerator[String]) = {
    val member = Promise[Channel[String]]()
    members.add(member)
    timeout((), 1.minute).foreach(_ => if (!member.isCompleted) members.remove(member))
    val sending = unicast[String](channel => member.success(channel))
    val receiving = Iteratee.foreach[String] { text =>
      if (text.startsWith(Command)) {
        members.foreach(_.future.foreach(_.push(s"$epochMicros ${text.stripPrefix(Command)}")))
      }
    }
    (receiving.map(_ => members.remove(member)), sending)
  }

  private def epochMicros: Long = ChronoUnit.MICROS.between(Instant.EPOCH, Instant.now())
}
