package main

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"time"
)

//go:noinline
func isOrder(line string) bool { return regexp.MustCompile(`^order-(\d+)/(item|part)-[a-f0-9]{8}$`).MatchString(line) }

func main() {
	s, _ := strconv.ParseFloat(os.Args[1], 64)
	end := time.Now().Add(time.Duration(s * 1e9))
	n := 0
	for time.Now().Before(end) {
		if isOrder("order-4711/item-00c0ffee") {
			n++
		}
	}
	fmt.Println(n)
}
