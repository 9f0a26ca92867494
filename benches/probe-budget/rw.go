// Goroutines that read and write one map under a sync.RWMutex, or count under a sync.Mutex. Prints operations a second.
// Usage: rw MODE GOROUTINES SECONDS; MODE is the part of writes in percent, or mutex.
package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

var stop atomic.Bool

func readAndWrite(writes uint64, table map[uint64]uint64, lock *sync.RWMutex, random *rand.Rand) (n, sum uint64) {
	for ; !stop.Load(); n++ {
		key := random.Uint64N(uint64(len(table)))
		if random.Uint64N(100) < writes {
			lock.Lock()
			table[key]++
			lock.Unlock()
		} else {
			lock.RLock()
			sum += table[key]
			lock.RUnlock()
		}
	}
	return
}

func count(shared *uint64, lock *sync.Mutex) (n, x uint64) {
	for ; !stop.Load(); n++ {
		lock.Lock()
		*shared++
		lock.Unlock()
		for i := range uint64(50) {
			x = x*31 + i
		}
	}
	return
}

func main() {
	goroutines, _ := strconv.Atoi(os.Args[2])
	seconds, _ := strconv.ParseFloat(os.Args[3], 64)
	writes, err := strconv.ParseUint(os.Args[1], 10, 64)
	table := map[uint64]uint64{}
	for key := range uint64(1024) {
		table[key] = key
	}
	var rw sync.RWMutex
	var mutex sync.Mutex
	var shared uint64
	var done sync.WaitGroup
	var total, sums atomic.Uint64
	begin := time.Now()
	for g := range goroutines {
		done.Add(1)
		go func() {
			defer done.Done()
			var n, sum uint64
			if err != nil {
				n, sum = count(&shared, &mutex)
			} else {
				n, sum = readAndWrite(writes, table, &rw, rand.New(rand.NewPCG(uint64(g), 1)))
			}
			total.Add(n)
			sums.Add(sum)
		}()
	}
	time.Sleep(time.Duration(seconds * 1e9))
	stop.Store(true)
	done.Wait()
	fmt.Printf("%.0f\n", float64(total.Load())/time.Since(begin).Seconds())
}
