import org.apache.pekko.stream.scaladsl.Flow
import play.api.{BuiltInComponents, Mode}
import play.api.http.websocket.{BinaryMessage, Message, TextMessage}
import play.api.mvc.{Handler, RequestHeader, Results, WebSocket}
import play.api.routing.sird._
import play.core.PlayVersion
import play.core.server.ServerConfig

/** Play 3 embedded, in the server that Engine names. Environment: HOST, PORT. */
object Main {
  def main(arguments: Array[String]): Unit =
    if (arguments.sameElements(Array("--version"))) {
      println(s"play ${PlayVersion.current}, ${Engine.name}, java ${System.getProperty("java.version")}")
    } else {
      Engine.start(ServerConfig(port = Some(sys.env("PORT").toInt), address = sys.env("HOST"), mode = Mode.Prod), routes)
    }

  private def routes(components: BuiltInComponents): PartialFunction[RequestHeader, Handler] = {
    case GET(p"/doc" ? q"size=${int(size)}") if size >= 0 =>
      components.defaultActionBuilder(Results.Ok(Array.fill(size)('.'.toByte)).as("text/html"))
    case GET(p"/echo") => WebSocket.accept[Message, Message](_ => Flow[Message].collect(data))
    case GET(p"/ping") => WebSocket.accept[String, String](_ => Flow[String].collect { case "Ping" => "Pong" })
    case GET(p"/push") => WebSocket.accept[String, String](_ => Push.join()(components.materializer))
  }

  private val data: PartialFunction[Message, Message] = {
    case text: TextMessage => text
    case binary: BinaryMessage => binary
  }
}
