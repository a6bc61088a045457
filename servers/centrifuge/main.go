// Centrifuge: rooms are channels, and an RPC returns its data. Environment: HOST, PORT, THREADS.
package main

import (
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"

	"github.com/centrifugal/centrifuge"
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == "--version" {
		fmt.Println(receipt())
		return
	}
	if threads, err := strconv.Atoi(os.Getenv("THREADS")); err == nil && threads > 0 {
		runtime.GOMAXPROCS(threads)
	}
	node, err := centrifuge.New(centrifuge.Config{})
	if err != nil {
		log.Fatal(err)
	}
	node.OnConnect(serve)
	if err := node.Run(); err != nil {
		log.Fatal(err)
	}
	http.Handle("/connection/websocket", anonymous(centrifuge.NewWebsocketHandler(node, centrifuge.WebsocketConfig{})))
	address := net.JoinHostPort(os.Getenv("HOST"), os.Getenv("PORT"))
	log.Fatal(http.ListenAndServe(address, nil))
}

// serve lets a client subscribe to every channel, publish into it, and call.
func serve(client *centrifuge.Client) {
	client.OnSubscribe(func(_ centrifuge.SubscribeEvent, done centrifuge.SubscribeCallback) {
		done(centrifuge.SubscribeReply{}, nil)
	})
	client.OnPublish(func(_ centrifuge.PublishEvent, done centrifuge.PublishCallback) {
		done(centrifuge.PublishReply{}, nil)
	})
	client.OnRPC(func(call centrifuge.RPCEvent, done centrifuge.RPCCallback) {
		done(centrifuge.RPCReply{Data: call.Data}, nil)
	})
}

// anonymous gives clients the credentials without which none is accepted.
func anonymous(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r.WithContext(centrifuge.SetCredentials(r.Context(), &centrifuge.Credentials{})))
	})
}

// receipt names the module that was really linked, not the one go.mod asks for.
func receipt() string {
	info, _ := debug.ReadBuildInfo()
	for _, module := range info.Deps {
		if module.Path == "github.com/centrifugal/centrifuge" {
			return fmt.Sprintf("%s %s, %s", module.Path, module.Version, runtime.Version())
		}
	}
	panic("github.com/centrifugal/centrifuge is not linked")
}
