// time.After in a loop: a timer and a channel for each message.
package main

import (
	"fmt"
	"os"
	"strconv"
	"time"
)

func receive(c chan int) int {
	select {
	case v := <-c:
		return v
	case <-time.After(time.Minute):
		return -1
	}
}

func main() {
	seconds, _ := strconv.ParseFloat(os.Args[1], 64)
	end := time.Now().Add(time.Duration(seconds * 1e9))
	c := make(chan int, 128)
	n := 0
	for time.Now().Before(end) {
		for i := 0; i < 100; i++ {
			c <- i
			n += receive(c)
		}
	}
	fmt.Println(n)
}
