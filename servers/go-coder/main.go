// coder/websocket behind net/http. Environment: HOST, PORT, THREADS, TLS_CERT, TLS_KEY, DEFLATE.
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
	if certificate := os.Getenv("TLS_CERT"); certificate != "" {
		log.Fatal(http.ListenAndServeTLS(address, certificate, os.Getenv("TLS_KEY"), nil))
	}
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
	var options websocket.AcceptOptions
	if os.Getenv("DEFLATE") != "" {
		options.CompressionMode = websocket.CompressionNoContextTakeover
	}
	connection, err := websocket.Accept(w, r, &options)
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

// member is a connection with its queue and a goroutine of its own that writes, as in the package's chat example.
type member struct {
	connection *websocket.Conn
	more       chan struct{} // holds one: there is something in tokens
	mutex      sync.Mutex
	tokens     []string
}

type push struct {
	mutex   sync.Mutex
	members map[*member]bool
}

// serve joins before the handshake: whoever has seen the 101 is a member. What is broadcast meanwhile waits in the queue.
func (p *push) serve(w http.ResponseWriter, r *http.Request) {
	one := &member{more: make(chan struct{}, 1)}
	p.change(func() { p.members[one] = true })
	defer p.change(func() { p.leave(one) })
	connection, err := accept(w, r)
	if err != nil {
		return
	}
	defer connection.CloseNow()
	one.connection = connection
	go one.write(r.Context())
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

func (one *member) write(context context.Context) {
	defer one.connection.CloseNow()
	for range one.more {
		for _, token := range one.waiting() {
			text := fmt.Sprintf("%d %s", time.Now().UnixMicro(), token)
			if one.connection.Write(context, websocket.MessageText, []byte(text)) != nil {
				return
			}
		}
	}
}

func (one *member) queue(token string) {
	one.mutex.Lock()
	one.tokens = append(one.tokens, token)
	one.mutex.Unlock()
	select {
	case one.more <- struct{}{}:
	default:
	}
}

func (one *member) waiting() []string {
	one.mutex.Lock()
	defer one.mutex.Unlock()
	tokens := one.tokens
	one.tokens = nil
	return tokens
}

// change holds the lock for something short: nobody writes to a connection meanwhile.
func (p *push) change(step func()) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	step()
}

func (p *push) broadcast(token string) {
	for one := range p.members {
		one.queue(token)
	}
}

func (p *push) leave(one *member) {
	delete(p.members, one)
	close(one.more)
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
