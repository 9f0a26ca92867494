// service SECONDS CLIENTS: an HTTP server on loopback that compresses and hashes a body for each request, and its clients in
// the same process. Tells requests a second.
package main

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

func main() {
	seconds, _ := strconv.ParseFloat(os.Args[1], 64)
	clients, _ := strconv.Atoi(os.Args[2])
	body := bytes.Repeat([]byte("a line of text that repeats\n"), 800)
	http.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		z := gzip.NewWriter(w)
		z.Write(body)
		z.Close()
		sum := sha256.Sum256(body)
		w.Write(sum[:])
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	go http.Serve(listener, nil)
	address := "http://" + listener.Addr().String() + "/"
	transport := &http.Transport{MaxIdleConnsPerHost: clients}
	var done atomic.Int64
	var all sync.WaitGroup
	begin := time.Now()
	for range clients {
		all.Add(1)
		go func() {
			defer all.Done()
			client := http.Client{Transport: transport}
			for time.Since(begin).Seconds() < seconds {
				answer, err := client.Get(address)
				if err != nil {
					panic(err)
				}
				io.Copy(io.Discard, answer.Body)
				answer.Body.Close()
				done.Add(1)
			}
		}()
	}
	all.Wait()
	fmt.Printf("%.1f requests/s\n", float64(done.Load())/time.Since(begin).Seconds())
}
