// maps rwmutex|sync THREADS SECONDS: goroutines that look numbers up in one map of 100,000, and store one in 64 times. Tells
// requests a second.
package main

import (
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

const numbers = 100_000

var (
	lock    sync.RWMutex
	guarded = map[int]int{}
	shared  sync.Map
	found   atomic.Int64
)

func lookUp(key int, put bool) int {
	if put {
		lock.Lock()
		defer lock.Unlock()
		guarded[key] = key + 1
		return 0
	}
	lock.RLock()
	defer lock.RUnlock()
	return guarded[key]
}

func lookUpShared(key int, put bool) int {
	if put {
		shared.Store(key, key+1)
		return 0
	}
	value, _ := shared.Load(key)
	return value.(int)
}

func main() {
	threads, _ := strconv.Atoi(os.Args[2])
	seconds, _ := strconv.ParseFloat(os.Args[3], 64)
	for i := 0; i < numbers; i++ {
		guarded[i] = i
		shared.Store(i, i)
	}
	work := lookUp
	if os.Args[1] == "sync" {
		work = lookUpShared
	}
	var over atomic.Bool
	var all sync.WaitGroup
	requests := make([]int64, threads)
	for t := range requests {
		all.Add(1)
		go func() {
			defer all.Done()
			random, n, sum := uint32(7919*(t+1)), int64(0), 0
			for ; !over.Load(); n++ {
				random = random*1103515245 + 12345
				sum += work(int(random>>8)%numbers, random>>26 == 0)
			}
			requests[t] = n
			found.Add(int64(sum))
		}()
	}
	time.Sleep(time.Duration(seconds * 1e9))
	over.Store(true)
	all.Wait()
	sum := int64(0)
	for _, n := range requests {
		sum += n
	}
	fmt.Printf("%.0f requests/s\n", float64(sum)/seconds)
}
