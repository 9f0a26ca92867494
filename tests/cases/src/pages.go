// Two stages, ten thousands of numbers at a time, in buffers that go round.
package main

import (
	"fmt"
	"os"
	"sort"
	"strconv"
	"sync"
	"time"
)

func render(batch []int, buf []byte) []byte {
	sort.Ints(batch)
	buf = buf[:0]
	for _, x := range batch {
		buf = strconv.AppendInt(buf, int64(x), 10)
		buf = append(buf, ',')
	}
	return buf
}
func main() {
	secs := 4.0
	if len(os.Args) > 1 {
		secs, _ = strconv.ParseFloat(os.Args[1], 64)
	}
	jobs := make(chan []int, 8)
	free := make(chan []int, 16)
	var wg sync.WaitGroup
	var mu sync.Mutex
	total := 0
	for w := 0; w < 2; w++ {
		wg.Add(1)
		go func() {
			defer wg.Done()
			var buf []byte
			n := 0
			for b := range jobs {
				buf = render(b, buf)
				n += len(buf)
				free <- b
			}
			mu.Lock()
			total += n
			mu.Unlock()
		}()
	}
	for i := 0; i < 12; i++ {
		free <- make([]int, 20000)
	}
	end := time.Now().Add(time.Duration(secs * 1e9))
	x := uint32(1)
	for time.Now().Before(end) {
		b := <-free
		for i := range b {
			x = x*1664525 + 1013904223
			b[i] = int(x >> 4)
		}
		jobs <- b
	}
	close(jobs)
	wg.Wait()
	fmt.Println("h_pages:", total)
}
