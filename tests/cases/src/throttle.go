// Sixteen workers of a controller ask a server through one client that limits itself to 50 requests a second (client-go's QPS; "Waited for
// 1.03s due to client-side throttling"). `twin` allows 2,000.
package main

import (
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

type Limiter struct {
	mu    sync.Mutex
	next  time.Time
	every time.Duration
	burst int
}

func (l *Limiter) reserve() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	least := now.Add(-time.Duration(l.burst) * l.every)
	if l.next.Before(least) {
		l.next = least
	}
	l.next = l.next.Add(l.every)
	return l.next.Sub(now)
}

//go:noinline
func (l *Limiter) Wait() {
	if d := l.reserve(); d > 0 {
		t := time.NewTimer(d)
		<-t.C
	}
}

type Client struct {
	http  *http.Client
	limit *Limiter
	base  string
}

//go:noinline
func (c *Client) Get(path string) int {
	c.limit.Wait()
	r, err := c.http.Get(c.base + path)
	if err != nil {
		panic(err)
	}
	b, _ := io.ReadAll(r.Body)
	r.Body.Close()
	return len(b)
}

//go:noinline
func reconcile(c *Client, n int) int {
	return c.Get("/pods/"+strconv.Itoa(n)) + c.Get("/nodes/"+strconv.Itoa(n))
}
func main() {
	secs, _ := strconv.ParseFloat(os.Args[1], 64)
	qps := 50
	if len(os.Args) > 2 && os.Args[2] == "twin" {
		qps = 2000
	}
	l, _ := net.Listen("tcp", "127.0.0.1:0")
	go http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "{\"path\":%q}", r.URL.Path) }))
	c := &Client{&http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 32}}, &Limiter{every: time.Second / time.Duration(qps), burst: 10}, "http://" + l.Addr().String()}
	end := time.Now().Add(time.Duration(secs * 1e9))
	var done atomic.Int64
	var wg sync.WaitGroup
	for w := 0; w < 16; w++ {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for n := w; time.Now().Before(end); n += 16 {
				reconcile(c, n)
				done.Add(1)
			}
		}()
	}
	wg.Wait()
	fmt.Printf("%.1f objects/s\n", float64(done.Load())/secs)
}
