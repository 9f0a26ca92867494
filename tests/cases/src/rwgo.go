// Readers of a sync.RWMutex all write its count of readers.
package main

import (
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"
)

var routes = map[string]int{"/a": 1, "/b": 2}
var routesLock sync.RWMutex

func lookupRoute(p string) int {
	routesLock.RLock()
	defer routesLock.RUnlock()
	return routes[p]
}

func main() {
	seconds, _ := strconv.ParseFloat(os.Args[1], 64)
	end := time.Now().Add(time.Duration(seconds * 1e9))
	var all sync.WaitGroup
	var sums [8 * 16]int
	for w := 0; w < 8; w++ {
		all.Add(1)
		go func() {
			defer all.Done()
			n := 0
			for time.Now().Before(end) {
				for i := 0; i < 1000; i++ {
					n += lookupRoute("/b")
				}
			}
			sums[w*16] = n
		}()
	}
	all.Wait()
	fmt.Println(sums[0])
}
