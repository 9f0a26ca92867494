// A worker asks its channel without waiting: select with a default, in a loop.
package main

import (
	"fmt"
	"os"
	"strconv"
	"time"
)

func waitForJob(jobs chan int) int {
	for {
		select {
		case j := <-jobs:
			return j
		default:
		}
	}
}

func main() {
	seconds, _ := strconv.ParseFloat(os.Args[1], 64)
	jobs := make(chan int)
	go func() {
		for {
			time.Sleep(20 * time.Millisecond)
			jobs <- 1
		}
	}()
	n := 0
	for end := time.Now().Add(time.Duration(seconds * 1e9)); time.Now().Before(end); {
		n += waitForJob(jobs)
	}
	fmt.Println(n)
}
