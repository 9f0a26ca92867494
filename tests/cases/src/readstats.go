// runtime.ReadMemStats for each request stops all goroutines. Twin "fixed": not for each request.
package main

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

var heap atomic.Uint64

func recordMetrics() {
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	heap.Store(stats.HeapAlloc)
}

func handleRequest(n uint64, metrics bool) uint64 {
	x := n | 1
	for i := 0; i < 20000; i++ {
		x = x*6364136223846793005 + 1442695040888963407
	}
	if metrics {
		recordMetrics()
	}
	return x
}

func main() {
	seconds, _ := strconv.ParseFloat(os.Args[1], 64)
	metrics := len(os.Args) == 2
	end := time.Now().Add(time.Duration(seconds * 1e9))
	var done, sum atomic.Uint64
	var all sync.WaitGroup
	for w := 0; w < 8; w++ {
		all.Add(1)
		go func() {
			defer all.Done()
			for time.Now().Before(end) {
				sum.Add(handleRequest(done.Add(1), metrics))
			}
		}()
	}
	all.Wait()
	fmt.Println(done.Load(), "requests")
}
