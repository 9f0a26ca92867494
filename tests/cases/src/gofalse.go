package main

import (
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"
)

var counters [8]int64

//go:noinline
func count(id int, end time.Time) {
	for time.Now().Before(end) {
		for i := 0; i < 100000; i++ {
			counters[id]++
		}
	}
}

func main() {
	s, _ := strconv.ParseFloat(os.Args[1], 64)
	end := time.Now().Add(time.Duration(s * 1e9))
	var w sync.WaitGroup
	for id := 0; id < 2; id++ {
		w.Add(1)
		go func(id int) { count(id, end); w.Done() }(id)
	}
	w.Wait()
	fmt.Println(counters)
}
