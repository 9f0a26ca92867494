// A C function of one instruction is called from Go for each byte.
package main

// static int classify(int c) { return c & 7; }
import "C"

import (
	"os"
	"strconv"
	"time"
)

func scan(n int) (sum int) {
	for i := 0; i < n; i++ {
		sum += int(C.classify(C.int(i)))
	}
	return
}

func main() {
	secs, _ := strconv.ParseFloat(os.Args[1], 64)
	end := time.Now().Add(time.Duration(secs * 1e9))
	go func() {
		for {
			scan(10000)
		}
	}()
	for time.Now().Before(end) {
		scan(10000)
	}
}
