import play.api.GlobalSettings
import play.api.libs.concurrent.Execution.Implicits.defaultContext
import play.api.libs.iteratee.Enumeratee
import play.api.mvc.{Action, Handler, RequestHeader, Results, WebSocket}

/** Play looks for an object of this name, and asks it where requests go. */
object Global extends GlobalSettings {
  override def onRouteRequest(request: RequestHeader): Option[Handler] = request.path match {
    case "/doc" => Some(document)
    case "/echo" => Some(WebSocket.adapter[Either[String, Array[Byte]]](_ => Enumeratee.passAlong))
    case "/ping" => Some(WebSocket.adapter[String](_ => Enumeratee.collect[String] { case "Ping" => "Pong" }))
    case "/push" => Some(WebSocket.using[String](_ => Push.join()))
    case _ => None
  }

  private def document = Action { request =>
    request.getQueryString("size").filter(_.matches("\\d{1,8}")) match {
      case Some(size) => Results.Ok(Array.fill(size.toInt)('.'.toByte)).as("text/html")
      case None => Results.BadRequest
    }
  }
}
