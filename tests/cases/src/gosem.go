// All requests pass a semaphore of one place (a channel), which is held while a backend answers. Twin: 16 places.
package main

import (
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

func query(sem chan struct{}) {
	sem <- struct{}{}
	defer func() { <-sem }()
	time.Sleep(3 * time.Millisecond)
}
func main() {
	secs, _ := strconv.ParseFloat(os.Args[1], 64)
	n := 1
	if len(os.Args) > 2 {
		n = 16
	}
	sem := make(chan struct{}, n)
	var total atomic.Int64
	var wg sync.WaitGroup
	end := time.Now().Add(time.Duration(secs * 1e9))
	for w := 0; w < 16; w++ {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for time.Now().Before(end) {
				query(sem)
				total.Add(1)
			}
		}()
	}
	wg.Wait()
	fmt.Printf("%.0f\n", float64(total.Load())/secs)
}
