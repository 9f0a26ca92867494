// GOMAXPROCS=1, as set for a container of one CPU: four workers share one CPU, the others idle.
package main

import (
	"os"
	"strconv"
	"sync"
	"time"
)

func crunch(x uint64) uint64 {
	for i := uint64(0); i < 1000000; i++ {
		x = x*6364136223846793005 + i
	}
	return x
}

func main() {
	secs, _ := strconv.ParseFloat(os.Args[1], 64)
	end := time.Now().Add(time.Duration(secs * 1e9))
	var all sync.WaitGroup
	for i := 0; i < 4; i++ {
		all.Add(1)
		go func() {
			defer all.Done()
			for x := uint64(1); time.Now().Before(end); {
				x = crunch(x)
			}
		}()
	}
	all.Wait()
}
