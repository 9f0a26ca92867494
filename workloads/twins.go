// A map behind one mutex, and its repaired twin with a map for each goroutine: twins [--repaired] GOROUTINES SECONDS.
package main

import (
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

type shard struct {
	sync.Mutex
	m map[int]int
	_ [64]byte
}

var all shard

//go:noinline
func compute(seed uint64, n int) uint64 {
	for i := 0; i < n; i++ {
		seed = seed*6364136223846793005 + 1442695040888963407
	}
	return seed
}

func main() {
	args := os.Args[1:]
	repaired := len(args) > 0 && args[0] == "--repaired"
	if repaired {
		args = args[1:]
	}
	n, _ := strconv.Atoi(args[0])
	seconds, _ := strconv.ParseFloat(args[1], 64)
	all.m = map[int]int{}
	null, _ := os.OpenFile("/dev/null", os.O_WRONLY, 0)
	var stop atomic.Bool
	var wg sync.WaitGroup
	done := make([]int, n*16)
	begin := time.Now()
	for i := 0; i < n; i++ {
		wg.Add(1)
		go func() {
			defer wg.Done()
			s := &all
			if repaired {
				s = &shard{m: map[int]int{}}
			}
			seed := uint64(i)
			for !stop.Load() {
				for k := 0; k < 10; k++ {
					s.Lock()
					s.m[int(seed>>20)%1000]++
					seed = compute(seed, 100)
					s.Unlock()
					seed = compute(seed, 300)
				}
				null.Write([]byte("x"))
				done[i*16]++
			}
		}()
	}
	time.Sleep(time.Duration(seconds * 1e9))
	stop.Store(true)
	wg.Wait()
	sum := 0
	for _, d := range done {
		sum += d
	}
	fmt.Printf("twins: %.0f ops/s\n", float64(sum)/time.Since(begin).Seconds())
}
