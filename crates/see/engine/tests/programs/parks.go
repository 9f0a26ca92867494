// A server in which one request in 25 waits 20 ms for a channel that another goroutine sends to, and another one for a mutex that it
// holds; and its own client. It prints how many requests there were, and the seconds for which they waited for the channel and the mutex.
package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"time"
)

const requests = 400

func client(address string) {
	for i := 0; i < requests; i++ {
		answer, err := http.Get("http://" + address)
		if err != nil {
			panic(err)
		}
		io.Copy(io.Discard, answer.Body)
		answer.Body.Close()
	}
}

func main() {
	if len(os.Args) > 2 {
		client(os.Args[2])
		return
	}
	var all, received, locked atomic.Int64
	var mutex sync.Mutex
	asked, hold := make(chan chan bool), make(chan bool)
	go func() {
		for answer := range asked {
			time.Sleep(20 * time.Millisecond)
			answer <- true
		}
	}()
	go func() {
		for range hold {
			mutex.Lock()
			hold <- true
			time.Sleep(20 * time.Millisecond)
			mutex.Unlock()
		}
	}()
	serve := func(w http.ResponseWriter, r *http.Request) {
		switch all.Add(1) % 25 {
		case 0:
			began, answer := time.Now(), make(chan bool)
			asked <- answer
			<-answer
			received.Add(int64(time.Since(began)))
		case 12:
			hold <- true
			<-hold
			began := time.Now()
			mutex.Lock()
			locked.Add(int64(time.Since(began)))
			mutex.Unlock()
		}
		w.Write([]byte("ok"))
	}
	listens, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	go http.Serve(listens, http.HandlerFunc(serve))
	// An observer needs a moment to recognise a program of Go.
	time.Sleep(time.Second)
	out, err := exec.Command("/proc/self/exe", "client", listens.Addr().String()).CombinedOutput()
	if err != nil {
		panic(string(out))
	}
	text := fmt.Sprintln(all.Load(), float64(received.Load())/1e9, float64(locked.Load())/1e9)
	if err := os.WriteFile(os.Args[1], []byte(text), 0o600); err != nil {
		panic(err)
	}
}
