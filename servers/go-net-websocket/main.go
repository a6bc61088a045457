// golang.org/x/net/websocket behind net/http. Environment: HOST, PORT, THREADS.
package main

import (
	"bytes"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/websocket"
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == "--version" {
		fmt.Println(receipt())
		return
	}
	if threads, err := strconv.Atoi(os.Getenv("THREADS")); err == nil && threads > 0 {
		runtime.GOMAXPROCS(threads)
	}
	members := push{members: map[*websocket.Conn]bool{}}
	http.HandleFunc("/doc", doc)
	// A Server, not a Handler: Handler refuses clients that send no Origin.
	http.Handle("/echo", websocket.Server{Handler: echo})
	http.Handle("/ping", websocket.Server{Handler: ping})
	http.Handle("/push", &members)
	address := net.JoinHostPort(os.Getenv("HOST"), os.Getenv("PORT"))
	log.Fatal(http.ListenAndServe(address, nil))
}

func doc(w http.ResponseWriter, r *http.Request) {
	size, err := strconv.Atoi(r.URL.Query().Get("size"))
	if err != nil || size < 0 {
		http.Error(w, "size=N", http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "text/html")
	w.Header().Set("Content-Length", strconv.Itoa(size))
	w.Write(bytes.Repeat([]byte("."), size))
}

// whole is a message with its type, which the package's own codecs forget.
type whole struct {
	payload     []byte
	payloadType byte
}

var asItCame = websocket.Codec{
	Marshal: func(v any) ([]byte, byte, error) {
		message := v.(whole)
		return message.payload, message.payloadType, nil
	},
	Unmarshal: func(payload []byte, payloadType byte, v any) error {
		*v.(*whole) = whole{payload, payloadType}
		return nil
	},
}

func echo(ws *websocket.Conn) {
	defer ws.Close()
	for {
		var message whole
		if asItCame.Receive(ws, &message) != nil || asItCame.Send(ws, message) != nil {
			return
		}
	}
}

func ping(ws *websocket.Conn) {
	defer ws.Close()
	for {
		var text string
		if websocket.Message.Receive(ws, &text) != nil {
			return
		}
		if text == "Ping" && websocket.Message.Send(ws, "Pong") != nil {
			return
		}
	}
}

type push struct {
	joining sync.RWMutex // held for reading from before the 101 until the connection is a member
	mutex   sync.Mutex
	members map[*websocket.Conn]bool
}

// ServeHTTP makes a connection a member before any broadcast can follow its 101, which the package sends before it calls the handler.
func (p *push) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.joining.RLock()
	joined := sync.OnceFunc(p.joining.RUnlock)
	defer joined() // a handshake that failed
	websocket.Server{Handler: func(ws *websocket.Conn) {
		p.join(ws)
		joined()
		p.serve(ws)
		p.leave(ws)
	}}.ServeHTTP(w, r)
}

func (p *push) join(ws *websocket.Conn) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.members[ws] = true
}

func (p *push) leave(ws *websocket.Conn) {
	p.mutex.Lock()
	delete(p.members, ws)
	p.mutex.Unlock()
	ws.Close()
}

func (p *push) serve(ws *websocket.Conn) {
	for {
		var text string
		if websocket.Message.Receive(ws, &text) != nil {
			return
		}
		if token, found := strings.CutPrefix(text, "broadcast "); found {
			p.broadcast(token)
		}
	}
}

// broadcast sends outside the lock: a member that does not read holds up this broadcast, but nobody's joining or leaving.
func (p *push) broadcast(token string) {
	p.joining.Lock()
	p.mutex.Lock()
	members := make([]*websocket.Conn, 0, len(p.members))
	for member := range p.members {
		members = append(members, member)
	}
	p.mutex.Unlock()
	p.joining.Unlock()
	for _, member := range members {
		// A member whose connection broke is removed by its own goroutine.
		websocket.Message.Send(member, fmt.Sprintf("%d %s", time.Now().UnixMicro(), token))
	}
}

// receipt names the module that was really linked, not the one go.mod asks for.
func receipt() string {
	info, _ := debug.ReadBuildInfo()
	for _, module := range info.Deps {
		if module.Path == "golang.org/x/net" {
			return fmt.Sprintf("%s %s, %s", module.Path, module.Version, runtime.Version())
		}
	}
	panic("golang.org/x/net is not linked")
}
