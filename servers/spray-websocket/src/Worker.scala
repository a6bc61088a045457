import akka.actor.{ActorRef, Stash}
import java.time.Instant
import java.time.temporal.ChronoUnit
import java.util.concurrent.ConcurrentHashMap
import scala.collection.JavaConversions._
import spray.can.server.UHttp
import spray.can.websocket
import spray.can.websocket.WebSocketServerWorker
import spray.can.websocket.frame.{BinaryFrame, TextFrame}
import spray.http.{HttpData, HttpEntity, HttpMethods, HttpRequest, HttpResponse, MediaTypes, StatusCodes}

/** One connection: documents until the handshake, one of the endpoints after it. */
final class Worker(val serverConnection: ActorRef) extends WebSocketServerWorker with Stash {
  import Worker._

  private var endpoint = ""

  /** A client of /push is a member before the 101 is on its way; tokens that come before the upgrade is done wait for it. */
  override def handshaking: Receive = {
    case request @ websocket.HandshakeRequest(state) =>
      endpoint = state.request.uri.path.toString
      if (endpoint == "/push") {
        members.add(self)
      }
      super.handshaking(request)
    case UHttp.Upgraded => super.handshaking(UHttp.Upgraded)
    case _: Token => stash()
    case HttpRequest(HttpMethods.GET, uri, _, _, _) if uri.path.toString == "/doc" =>
      sender() ! document(uri.query.get("size"))
    case _: HttpRequest => sender() ! HttpResponse(StatusCodes.NotFound)
  }

  override def businessLogic: Receive = {
    case websocket.UpgradedToWebSocket => unstashAll()
    case frame @ (_: TextFrame | _: BinaryFrame) if endpoint == "/echo" => sender() ! frame
    case TextFrame(text) if endpoint == "/ping" && text.utf8String == "Ping" => send(TextFrame("Pong"))
    case TextFrame(text) if endpoint == "/push" && text.utf8String.startsWith(Command) =>
      val token = Token(text.utf8String.stripPrefix(Command))
      members.foreach(_ ! token)
    case Token(token) => send(TextFrame(s"$epochMicros $token"))
  }

  override def postStop(): Unit = members.remove(self)
}

object Worker {
  private final case class Token(text: String)

  private val Command = "broadcast "
  private val members = ConcurrentHashMap.newKeySet[ActorRef]()

  private def document(size: Option[String]): HttpResponse = size match {
    case Some(digits) if digits.matches("\\d{1,8}") =>
      val page = Array.fill(digits.toInt)('.'.toByte)
      HttpResponse(entity = HttpEntity(MediaTypes.`text/html`, HttpData(page)))
    case _ => HttpResponse(StatusCodes.BadRequest)
  }

  private def epochMicros: Long = ChronoUnit.MICROS.between(Instant.EPOCH, Instant.now())
}
