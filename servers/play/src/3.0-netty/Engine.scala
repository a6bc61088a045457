import play.api.BuiltInComponents
import play.api.mvc.{Handler, RequestHeader}
import play.core.server.{NettyServer, Server, ServerConfig}

object Engine {
  val name = "netty"

  def start(config: ServerConfig, routes: BuiltInComponents => PartialFunction[RequestHeader, Handler]): Server =
    NettyServer.fromRouterWithComponents(config)(routes)
}
