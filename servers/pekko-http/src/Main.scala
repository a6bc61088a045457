import org.apache.pekko.NotUsed
import org.apache.pekko.actor.ActorSystem
import org.apache.pekko.http.Version
import org.apache.pekko.http.scaladsl.Http
import org.apache.pekko.http.scaladsl.model.{ContentTypes, HttpEntity, StatusCodes}
import org.apache.pekko.http.scaladsl.model.ws.{BinaryMessage, Message, TextMessage}
import org.apache.pekko.http.scaladsl.server.Directives._
import org.apache.pekko.http.scaladsl.server.Route
import org.apache.pekko.stream.scaladsl.Flow
import scala.concurrent.duration._

/** Pekko HTTP with its default dispatcher. Environment: HOST, PORT. */
object Main {
  def main(arguments: Array[String]): Unit =
    if (arguments.sameElements(Array("--version"))) {
      println(s"pekko-http ${Version.current}, pekko ${ActorSystem.Version}, java ${System.getProperty("java.version")}")
    } else {
      implicit val system: ActorSystem = ActorSystem("wsbench")
      Http().newServerAt(sys.env("HOST"), sys.env("PORT").toInt).bind(route)
    }

  private def route(implicit system: ActorSystem): Route = concat(
    (get & path("doc") & parameter("size".as[Int])) {
      case size if size < 0 => complete(StatusCodes.BadRequest)
      case size => complete(HttpEntity(ContentTypes.`text/html(UTF-8)`, Array.fill(size)('.'.toByte)))
    },
    path("echo")(handleWebSocketMessages(whole)),
    path("ping")(handleWebSocketMessages(whole.collect { case TextMessage.Strict("Ping") => TextMessage("Pong") })),
    path("push")(extractMaterializer(_ => handleWebSocketMessages(Push.join(whole))))
  )

  /** A message whose bytes do not arrive all at once is a stream to Pekko; this waits until it is whole. */
  private def whole(implicit system: ActorSystem): Flow[Message, Message, NotUsed] = Flow[Message].mapAsync(1) {
    case text: TextMessage => text.toStrict(1.minute)
    case binary: BinaryMessage => binary.toStrict(1.minute)
  }
}
