// coder/websocket behind net/http. Environment: HOST, PORT, THREADS.
package main

import (
	"bytes"
	"context"
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

	"github.com/coder/websocket"
)

// largestMessage raises the package's 32 KiB to the largest message of the contract.
const largestMessage = 16 << 20

func main() {
	if len(os.Args) == 2 && os.Args[1] == "--version" {
		fmt.Println(receipt())
		return
	}
	if threads, err := strconv.Atoi(os.Getenv("THREADS")); err == nil && threads > 0 {
		runtime.GOMAXPROCS(threads)
	}
	members := push{members: map[*member]bool{}}
	http.HandleFunc("/doc", doc)
	http.HandleFunc("/echo", echo)
	http.HandleFunc("/ping", ping)
	http.HandleFunc("/push", members.serve)
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

func accept(w http.ResponseWriter, r *http.Request) (*websocket.Conn, error) {
	connection, err := websocket.Accept(w, r, nil)
	if err == nil {
		connection.SetReadLimit(largestMessage)
	}
	return connection, err
}

func echo(w http.ResponseWriter, r *http.Request) {
	connection, err := accept(w, r)
	if err != nil {
		return // Accept has answered
	}
	defer connection.CloseNow()
	for {
		messageType, message, err := connection.Read(r.Context())
		if err != nil || connection.Write(r.Context(), messageType, message) != nil {
			return
		}
	}
}

func ping(w http.ResponseWriter, r *http.Request) {
	connection, err := accept(w, r)
	if err != nil {
		return
	}
	defer connection.CloseNow()
	for {
		messageType, message, err := connection.Read(r.Context())
		if err != nil {
			return
		}
		asked := messageType == websocket.MessageText && string(message) == "Ping"
		if asked && connection.Write(r.Context(), websocket.MessageText, []byte("Pong")) != nil {
			return
		}
	}
}

// mostUnsent is how far a member may fall behind. The package's chat example has 16 and drops who is slower.
const mostUnsent = 256

// member is a connection with its queue and, as in the package's chat example, a goroutine that writes.
type member struct {
	tokens     chan string
	connection *websocket.Conn // nil until the handshake is done
}

type push struct {
	mutex   sync.Mutex
	members map[*member]bool
}

// serve joins before the handshake: whoever has seen the 101 is a member. What is broadcast meanwhile waits in the queue.
func (p *push) serve(w http.ResponseWriter, r *http.Request) {
	one := &member{tokens: make(chan string, mostUnsent)}
	p.change(func() { p.members[one] = true })
	defer p.change(func() { p.drop(one) })
	connection, err := accept(w, r)
	if err != nil {
		return
	}
	p.change(func() { one.connection = connection })
	go write(r.Context(), one)
	for {
		messageType, message, err := connection.Read(r.Context())
		if err != nil {
			return
		}
		token, found := strings.CutPrefix(string(message), "broadcast ")
		if found && messageType == websocket.MessageText {
			p.change(func() { p.broadcast(token) })
		}
	}
}

func write(context context.Context, one *member) {
	defer one.connection.CloseNow()
	for token := range one.tokens {
		text := fmt.Sprintf("%d %s", time.Now().UnixMicro(), token)
		if one.connection.Write(context, websocket.MessageText, []byte(text)) != nil {
			return
		}
	}
}

func (p *push) change(step func()) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	step()
}

func (p *push) broadcast(token string) {
	for one := range p.members {
		select {
		case one.tokens <- token:
		default:
			p.drop(one)
		}
	}
}

func (p *push) drop(one *member) {
	if !p.members[one] {
		return
	}
	delete(p.members, one)
	close(one.tokens)
	if one.connection != nil {
		one.connection.CloseNow()
	}
}

// receipt names the module that was really linked, not the one go.mod asks for.
func receipt() string {
	info, _ := debug.ReadBuildInfo()
	for _, module := range info.Deps {
		if module.Path == "github.com/coder/websocket" {
			return fmt.Sprintf("%s %s, %s", module.Path, module.Version, runtime.Version())
		}
	}
	panic("github.com/coder/websocket is not linked")
}
