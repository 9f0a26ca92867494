// A server in which one request in 25 waits 20 ms for a channel that another goroutine sends to, and its own client. It prints how many
// requests there were, how many of them were slow, and the seconds for which they waited.
package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
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
	var all, slow, waited atomic.Int64
	asked := make(chan chan bool)
	go func() {
		for answer := range asked {
			time.Sleep(20 * time.Millisecond)
			answer <- true
		}
	}()
	serve := func(w http.ResponseWriter, r *http.Request) {
		if all.Add(1)%25 == 0 {
			began, answer := time.Now(), make(chan bool)
			asked <- answer
			<-answer
			waited.Add(int64(time.Since(began)))
			slow.Add(1)
		}
		w.Write([]byte("ok"))
	}
	listens, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	go http.Serve(listens, http.HandlerFunc(serve))
	out, err := exec.Command("/proc/self/exe", "client", listens.Addr().String()).CombinedOutput()
	if err != nil {
		panic(string(out))
	}
	text := fmt.Sprintln(all.Load(), slow.Load(), strconv.FormatFloat(float64(waited.Load())/1e9, 'f', 6, 64))
	if err := os.WriteFile(os.Args[1], []byte(text), 0o600); err != nil {
		panic(err)
	}
}
