// A random source is seeded for each request. Twin: one source for all.
package main

import (
	"fmt"
	"math/rand"
	"os"
	"strconv"
	"time"
)

// A load balancer that picks a backend for each request.
type balancer struct {
	backends []string
	rng      *rand.Rand
}

func (b *balancer) pick(id int64) string {
	rng := rand.New(rand.NewSource(time.Now().UnixNano() + id))
	return b.backends[rng.Intn(len(b.backends))]
}

func (b *balancer) pickShared() string {
	return b.backends[b.rng.Intn(len(b.backends))]
}

var bytes int

func forward(backend string, body []byte) {
	h := uint32(2166136261)
	for _, c := range body {
		h = (h ^ uint32(c)) * 16777619
	}
	bytes += int(h&1) + len(backend)
}

func main() {
	seconds, _ := strconv.ParseFloat(os.Args[1], 64)
	good := len(os.Args) > 2
	end := time.Now().Add(time.Duration(seconds * 1e9))
	b := &balancer{rng: rand.New(rand.NewSource(1))}
	for i := 0; i < 20; i++ {
		b.backends = append(b.backends, fmt.Sprintf("10.0.0.%d", i))
	}
	body := make([]byte, 600)
	n := int64(0)
	for time.Now().Before(end) {
		for i := 0; i < 50; i++ {
			if good {
				forward(b.pickShared(), body)
			} else {
				forward(b.pick(n), body)
			}
			n++
		}
	}
	fmt.Println(n, "requests", bytes)
}
