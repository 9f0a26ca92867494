// Eight goroutines log each event by one logger: it has a lock, and a write for each line.
package main

import (
	"log"
	"os"
	"strconv"
	"sync"
	"time"
)

func handleEvent(l *log.Logger, who, i int) { l.Printf("worker %d event %d", who, i) }

func main() {
	seconds, _ := strconv.ParseFloat(os.Args[1], 64)
	end := time.Now().Add(time.Duration(seconds * 1e9))
	f, _ := os.OpenFile("/dev/null", os.O_WRONLY, 0)
	l := log.New(f, "", log.LstdFlags)
	var all sync.WaitGroup
	for w := 0; w < 8; w++ {
		all.Add(1)
		go func() {
			defer all.Done()
			for i := 0; time.Now().Before(end); i++ {
				handleEvent(l, w, i)
			}
		}()
	}
	all.Wait()
}
