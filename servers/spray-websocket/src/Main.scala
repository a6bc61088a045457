import akka.actor.{Actor, ActorSystem, Props}
import akka.io.IO
import spray.can.Http
import spray.can.server.UHttp

/** spray-can with spray-websocket: an actor for every connection. Environment: HOST, PORT. */
object Main {
  def main(arguments: Array[String]): Unit =
    if (arguments.sameElements(Array("--version"))) {
      val jar = classOf[spray.can.websocket.WebSocketServerWorker].getProtectionDomain.getCodeSource.getLocation.getPath
      println(s"${jar.split('/').last}, java ${System.getProperty("java.version")}")
    } else {
      implicit val system = ActorSystem("wsbench")
      val listener = system.actorOf(Props(new Listener))
      IO(UHttp) ! Http.Bind(listener, sys.env("HOST"), sys.env("PORT").toInt)
    }

  private final class Listener extends Actor {
    override def receive: Receive = {
      case Http.Connected(_, _) =>
        val connection = sender()
        connection ! Http.Register(context.actorOf(Props(new Worker(connection))))
    }
  }
}
