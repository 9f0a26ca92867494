package main

import (
	"fmt"
	"os"
	"strconv"
	"time"
)

//go:noinline
func report(rows int) string {
	s := ""
	for i := 0; i < rows; i++ {
		s += "row;"
	}
	return s
}

func main() {
	s, _ := strconv.ParseFloat(os.Args[1], 64)
	end := time.Now().Add(time.Duration(s * 1e9))
	n := 0
	for time.Now().Before(end) {
		n += len(report(20000))
	}
	fmt.Println(n)
}
