// Starts a goroutine for each number that it checks. "fixed": for each CPU.
package main

import (
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

func isWanted(n int) bool { return n%2 == 1 && n%5 != 0 }

func countAll(n int, fixed bool) int64 {
	var group sync.WaitGroup
	var wanted atomic.Int64
	if fixed {
		for w := range 2 {
			group.Go(func() {
				found := int64(0)
				for i := w; i < n; i += 2 {
					if isWanted(i) {
						found++
					}
				}
				wanted.Add(found)
			})
		}
		group.Wait()
		return wanted.Load()
	}
	for i := range n {
		group.Add(1)
		go func() {
			defer group.Done()
			if isWanted(i) {
				wanted.Add(1)
			}
		}()
	}
	group.Wait()
	return wanted.Load()
}

func main() {
	seconds, _ := strconv.ParseFloat(os.Args[1], 64)
	end := time.Now().Add(time.Duration(seconds * 1e9))
	rounds, found := 0, int64(0)
	for ; time.Now().Before(end); rounds++ {
		found += countAll(10000, len(os.Args) > 2)
	}
	fmt.Println(rounds, "rounds,", found, "found")
}
