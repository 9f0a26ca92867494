// A register of sessions is a map that is copied for each change and put in place by compare-and-swap: those who lose copy
// again. twin: one map and a mutex.
package main

import (
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

type table map[int]int

var (
	current atomic.Pointer[table]
	lock    sync.Mutex
	fixed   bool
	changes atomic.Int64
)

//go:noinline
func update(session, value int) {
	for {
		old := current.Load()
		next := make(table, len(*old))
		for k, v := range *old {
			next[k] = v
		}
		next[session] = value
		if current.CompareAndSwap(old, &next) {
			return
		}
	}
}

//go:noinline
func updateInPlace(session, value int) {
	lock.Lock()
	(*current.Load())[session] = value
	lock.Unlock()
}

func serve(n int, end time.Time) {
	x := uint64(n + 1)
	for time.Now().Before(end) {
		for i := 0; i < 3000; i++ {
			x = x*6364136223846793005 + 1442695040888963407
		}
		if fixed {
			updateInPlace(int(x>>33)%1000, n)
		} else {
			update(int(x>>33)%1000, n)
		}
		changes.Add(1)
	}
}

func main() {
	seconds := 3.0
	if len(os.Args) > 1 {
		seconds, _ = strconv.ParseFloat(os.Args[1], 64)
	}
	fixed = len(os.Args) > 2 && os.Args[2] == "twin"
	first := make(table)
	for i := 0; i < 1000; i++ {
		first[i] = 0
	}
	current.Store(&first)
	end := time.Now().Add(time.Duration(seconds * 1e9))
	var all sync.WaitGroup
	for n := 0; n < 4; n++ {
		all.Add(1)
		go func() { defer all.Done(); serve(n, end) }()
	}
	all.Wait()
	fmt.Printf("%.0f changes/s\n", float64(changes.Load())/seconds)
}
