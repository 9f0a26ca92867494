package main

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"time"
)

var kept = map[int][]byte{}

//go:noinline
func handle(i int) int {
	kept[i%5000] = make([]byte, 2000)
	if i%200 == 0 {
		runtime.GC()
	}
	n := 0
	for _, b := range kept[i%5000] {
		n += int(b) + i
	}
	return n
}

func main() {
	s, _ := strconv.ParseFloat(os.Args[1], 64)
	end := time.Now().Add(time.Duration(s * 1e9))
	n := 0
	for i := 0; time.Now().Before(end); i++ {
		n += handle(i)
	}
	fmt.Println(n)
}
