// Goroutines and one lock; writes how long they waited for it, by their own clock, into a file. Go's own account looks at
// one wait in eight only.
package main

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

var (
	mutex sync.Mutex
	rw    sync.RWMutex
)

func hold(ms int) {
	for end := time.Now().Add(time.Duration(ms) * time.Millisecond); time.Now().Before(end); {
	}
}

func main() {
	end := time.Now().Add(1500 * time.Millisecond)
	var group sync.WaitGroup
	var waited atomic.Int64
	for i := 0; i < 4; i++ {
		group.Add(1)
		lock, unlock := mutex.Lock, mutex.Unlock
		if os.Args[1] == "rwmutex" {
			// A writer among readers.
			lock, unlock = rw.RLock, rw.RUnlock
			if i == 0 {
				lock, unlock = rw.Lock, rw.Unlock
			}
		}
		go func() {
			defer group.Done()
			for time.Now().Before(end) {
				began := time.Now()
				lock()
				waited.Add(int64(time.Since(began)))
				hold(10)
				unlock()
			}
		}()
	}
	group.Wait()
	text := fmt.Sprintf("%.3f\n", time.Duration(waited.Load()).Seconds())
	if err := os.WriteFile(os.Args[2], []byte(text), 0o600); err != nil {
		panic(err)
	}
}
