// Goroutines count words in a map. How they share it is the first argument: `mutex`, or `parts` (a lock for each part of the
// data); the second is seconds.
// usage: go run counters.go mutex 5
package main

import (
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

const parts = 64

var (
	mutex  sync.Mutex
	words  = map[uint32]int{}
	parted [parts]struct {
		sync.Mutex
		words map[uint32]int
	}
)

//go:noinline
func mix(x uint32, rounds int) uint32 {
	for i := 0; i < rounds; i++ {
		x ^= x << 13
		x ^= x >> 17
		x ^= x << 5
	}
	return x
}

func count(word uint32) time.Duration {
	before := time.Now()
	mutex.Lock()
	waited := time.Since(before)
	words[mix(word, 20000)%1024]++
	mutex.Unlock()
	return waited
}

func countInParts(word uint32) time.Duration {
	part := &parted[mix(word, 100)%parts]
	before := time.Now()
	part.Lock()
	waited := time.Since(before)
	part.words[mix(word, 20000)%1024]++
	part.Unlock()
	return waited
}

func main() {
	how := count
	if os.Args[1] == "parts" {
		how = countInParts
	}
	for i := range parted {
		parted[i].words = map[uint32]int{}
	}
	seconds, err := strconv.ParseFloat(os.Args[2], 64)
	if err != nil {
		panic(err)
	}
	end := time.Now().Add(time.Duration(seconds * 1e9))
	var group sync.WaitGroup
	var done, waited atomic.Int64
	for i := 0; i < 4; i++ {
		group.Add(1)
		go func(word uint32) {
			defer group.Done()
			for time.Now().Before(end) {
				word = mix(word, 5000)
				waited.Add(int64(how(word)))
				done.Add(1)
			}
		}(uint32(i + 1))
	}
	group.Wait()
	fmt.Printf("%s: %.0f words/s, goroutines waited %.1f s by their own clocks\n",
		os.Args[1], float64(done.Load())/seconds, time.Duration(waited.Load()).Seconds())
}
