// GOGC=5: the collector runs all the time, and allocating goroutines assist.
package main

import (
	"os"
	"runtime/debug"
	"strconv"
	"sync"
	"time"
)

type node struct{ next *node; data [6]int }

var keep [2][]*node

func decode(id, n int) {
	var l *node
	for i := 0; i < 200; i++ {
		l = &node{data: [6]int{i}}
	}
	keep[id][n%len(keep[id])] = l
}

func main() {
	secs, _ := strconv.ParseFloat(os.Args[1], 64)
	debug.SetGCPercent(5)
	end := time.Now().Add(time.Duration(secs * 1e9))
	var all sync.WaitGroup
	for id := range keep {
		keep[id] = make([]*node, 200000)
		for i := range keep[id] {
			keep[id][i] = &node{}
		}
		all.Add(1)
		go func() {
			defer all.Done()
			for n := 0; time.Now().Before(end); n++ {
				decode(id, n)
			}
		}()
	}
	all.Wait()
}
