// gobwas/ws behind net/http. Environment: HOST, PORT, THREADS; KEEP_ALIVE=off: no probes of TCP's on idle connections.
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

	"github.com/gobwas/ws"
	"github.com/gobwas/ws/wsutil"
)

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
	var config net.ListenConfig
	if os.Getenv("KEEP_ALIVE") == "off" {
		config.KeepAlive = -1
	}
	listener, err := config.Listen(context.Background(), "tcp", address)
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(http.Serve(listener, nil))
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

func echo(w http.ResponseWriter, r *http.Request) {
	connection, _, _, err := ws.UpgradeHTTP(r, w)
	if err != nil {
		return // UpgradeHTTP has answered
	}
	// The handler returns: what net/http keeps for a request is let go.
	go each(connection, func(opcode ws.OpCode, message []byte) error {
		return write(connection, opcode, message)
	})
}

func ping(w http.ResponseWriter, r *http.Request) {
	connection, _, _, err := ws.UpgradeHTTP(r, w)
	if err != nil {
		return
	}
	go each(connection, func(opcode ws.OpCode, message []byte) error {
		if opcode == ws.OpText && string(message) == "Ping" {
			return write(connection, ws.OpText, []byte("Pong"))
		}
		return nil
	})
}

// each reads messages until one cannot be read or dealt with; the package answers control frames meanwhile.
func each(connection net.Conn, deal func(ws.OpCode, []byte) error) {
	defer connection.Close()
	for {
		message, opcode, err := wsutil.ReadClientData(connection)
		if err != nil || deal(opcode, message) != nil {
			return
		}
	}
}

// write sends a frame as one piece: no other goroutine's gets in between.
func write(connection net.Conn, opcode ws.OpCode, message []byte) error {
	frame, err := ws.CompileFrame(ws.NewFrame(opcode, true, message))
	if err != nil {
		return err
	}
	_, err = connection.Write(frame)
	return err
}

// member is a connection with its queue. A goroutine that writes is there only while something is queued.
type member struct {
	connection net.Conn
	mutex      sync.Mutex
	tokens     []string
	writing    bool // or not connected yet
}

type push struct {
	mutex   sync.Mutex
	members map[*member]bool
}

// serve joins before the handshake: whoever has seen the 101 is a member. What is broadcast meanwhile waits in the queue.
func (p *push) serve(w http.ResponseWriter, r *http.Request) {
	one := &member{writing: true}
	p.change(func() { p.members[one] = true })
	connection, _, _, err := ws.UpgradeHTTP(r, w)
	if err != nil {
		p.change(func() { delete(p.members, one) })
		return
	}
	one.connection = connection
	go one.write()
	go func() {
		defer p.change(func() { delete(p.members, one) })
		each(connection, func(opcode ws.OpCode, message []byte) error {
			if token, found := strings.CutPrefix(string(message), "broadcast "); found && opcode == ws.OpText {
				p.change(func() { p.broadcast(token) })
			}
			return nil
		})
	}()
}

// write sends what is queued, and ends.
func (one *member) write() {
	for tokens := one.waiting(); tokens != nil; tokens = one.waiting() {
		for _, token := range tokens {
			text := fmt.Sprintf("%d %s", time.Now().UnixMicro(), token)
			if write(one.connection, ws.OpText, []byte(text)) != nil {
				one.connection.Close()
				return
			}
		}
	}
}

func (one *member) queue(token string) {
	one.mutex.Lock()
	defer one.mutex.Unlock()
	one.tokens = append(one.tokens, token)
	if !one.writing {
		one.writing = true
		go one.write()
	}
}

// waiting takes what is queued; nil where there is nothing, and then nobody writes any more.
func (one *member) waiting() []string {
	one.mutex.Lock()
	defer one.mutex.Unlock()
	tokens := one.tokens
	one.tokens = nil
	one.writing = tokens != nil
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

// receipt names the module that was really linked, not the one go.mod asks for.
func receipt() string {
	info, _ := debug.ReadBuildInfo()
	for _, module := range info.Deps {
		if module.Path == "github.com/gobwas/ws" {
			return fmt.Sprintf("%s %s, %s", module.Path, module.Version, runtime.Version())
		}
	}
	panic("github.com/gobwas/ws is not linked")
}
