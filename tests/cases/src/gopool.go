// Connections to a backend are lent from a free list (a channel) that holds two; 24 handlers wait for one. Twin: 24.
package main

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

type client struct {
	c net.Conn
	r *bufio.Reader
}
type pool struct{ idle chan *client }

func (p *pool) get() *client  { return <-p.idle }
func (p *pool) put(c *client) { p.idle <- c }
func serve(l net.Listener) {
	for {
		c, e := l.Accept()
		if e != nil {
			return
		}
		go func() {
			r := bufio.NewReader(c)
			for {
				line, e := r.ReadString('\n')
				if e != nil {
					return
				}
				time.Sleep(2 * time.Millisecond)
				c.Write([]byte(line))
			}
		}()
	}
}
func lookup(p *pool, key int) string {
	c := p.get()
	defer p.put(c)
	fmt.Fprintf(c.c, "%d\n", key)
	s, _ := c.r.ReadString('\n')
	return s
}
func main() {
	secs, _ := strconv.ParseFloat(os.Args[1], 64)
	n := 2
	if len(os.Args) > 2 {
		n = 24
	}
	l, _ := net.Listen("tcp", "127.0.0.1:0")
	go serve(l)
	p := &pool{make(chan *client, n)}
	for i := 0; i < n; i++ {
		c, e := net.Dial("tcp", l.Addr().String())
		if e != nil {
			panic(e)
		}
		p.put(&client{c, bufio.NewReader(c)})
	}
	var done atomic.Int64
	var wg sync.WaitGroup
	end := time.Now().Add(time.Duration(secs * 1e9))
	for h := 0; h < 24; h++ {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for time.Now().Before(end) {
				lookup(p, h)
				done.Add(1)
			}
		}()
	}
	wg.Wait()
	fmt.Printf("%.0f\n", float64(done.Load())/secs)
}
