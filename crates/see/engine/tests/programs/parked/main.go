// Goroutines that give up their thread while they hold one lock, so that the others park for it hundreds of thousands of
// times a second; or that work and sleep with it, and park a few times. Prints how often it was taken.
package main

import (
	"fmt"
	"os"
	"runtime"
	"sync"
	"time"
)

func main() {
	var mutex sync.Mutex
	var done sync.WaitGroup
	taken := 0
	end := time.Now().Add(1500 * time.Millisecond)
	for range 8 {
		done.Add(1)
		go func() {
			defer done.Done()
			for time.Now().Before(end) {
				mutex.Lock()
				taken++
				if os.Args[1] == "hot" {
					runtime.Gosched()
				} else {
					for begin := time.Now(); time.Since(begin) < time.Millisecond; {
					}
					time.Sleep(15 * time.Millisecond)
				}
				mutex.Unlock()
			}
		}()
	}
	done.Wait()
	fmt.Println(taken)
}
