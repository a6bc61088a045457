import java.io.File
import play.core.{PlayVersion, StaticApplication}
import play.core.server.NettyServer

/** Play 2.3 in its own server, which is on Netty 3. Environment: HOST, PORT. */
object Main {
  def main(arguments: Array[String]): Unit =
    if (arguments.sameElements(Array("--version"))) {
      println(s"play ${PlayVersion.current}, java ${System.getProperty("java.version")}")
    } else {
      new NettyServer(new StaticApplication(new File(".")), Some(sys.env("PORT").toInt), address = sys.env("HOST"))
    }
}
