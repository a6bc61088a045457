import play.api.BuiltInComponents
import play.api.mvc.{Handler, RequestHeader}
import play.core.server.{PekkoHttpServer, Server, ServerConfig}

object Engine {
  val name = "pekko http"

  def start(config: ServerConfig, routes: BuiltInComponents => PartialFunction[RequestHeader, Handler]): Server =
    PekkoHttpServer.fromRouterWithComponents(config)(routes)
}
