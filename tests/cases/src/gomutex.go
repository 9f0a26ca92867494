// Eight goroutines count in one map under a sync.Mutex.
package main

import (
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"
)

var hits = map[string]int{}
var hitsLock sync.Mutex

func countHit(page string) {
	hitsLock.Lock()
	hits[page]++
	hitsLock.Unlock()
}

func main() {
	seconds, _ := strconv.ParseFloat(os.Args[1], 64)
	end := time.Now().Add(time.Duration(seconds * 1e9))
	var all sync.WaitGroup
	for w := 0; w < 8; w++ {
		all.Add(1)
		go func() {
			defer all.Done()
			for time.Now().Before(end) {
				for i := 0; i < 200; i++ {
					countHit("/index")
				}
			}
		}()
	}
	all.Wait()
	fmt.Println(len(hits))
}
