// A goroutine for each request calls deep: its stack begins at 8 KiB and is copied to one of twice the size, again and again
// (golang/go#18138: new goroutines spend their time in morestack). `twin` has workers that stay.
package main

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"time"
)

//go:noinline
func plan(depth int, x uint32) uint32 {
	var row [64]uint32
	for i := range row {
		row[i] = x + uint32(i)
	}
	if depth == 0 {
		return row[x%64]
	}
	return plan(depth-1, x*1664525+row[x%64]) + row[(x>>3)%64]
}

func serve(in <-chan uint32, out chan<- uint32) {
	for x := range in {
		out <- plan(150, x)
	}
}

func main() {
	seconds, _ := strconv.ParseFloat(os.Args[1], 64)
	end := time.Now().Add(time.Duration(seconds * 1e9))
	twin := len(os.Args) > 2
	n := runtime.NumCPU()
	total := make([]int, n*16)
	var wg sync.WaitGroup
	for t := 0; t < n; t++ {
		wg.Add(1)
		go func() {
			defer wg.Done()
			in, out := make(chan uint32, 64), make(chan uint32, 64)
			if twin {
				go serve(in, out)
			}
			for time.Now().Before(end) {
				for i := 0; i < 64; i++ {
					if twin {
						in <- uint32(i)
					} else {
						go func() { out <- plan(150, uint32(i)) }()
					}
				}
				for i := 0; i < 64; i++ {
					<-out
					total[t*16]++
				}
			}
		}()
	}
	wg.Wait()
	sum := 0
	for t := 0; t < n; t++ {
		sum += total[t*16]
	}
	fmt.Printf("%.0f requests/s\n", float64(sum)/seconds)
}
