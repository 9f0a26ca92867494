// An unbuffered channel hands over one number at a time.
package main

import (
	"os"
	"strconv"
	"time"
)

func produce(c chan int, end time.Time) {
	for i := 0; ; i++ {
		if i%1000 == 0 && time.Now().After(end) {
			close(c)
			return
		}
		c <- i
	}
}

func main() {
	secs, _ := strconv.ParseFloat(os.Args[1], 64)
	c, d := make(chan int), make(chan int)
	go produce(c, time.Now().Add(time.Duration(secs*1e9)))
	go func() {
		for x := range c {
			d <- x + 1
		}
		close(d)
	}()
	sum := 0
	for x := range d {
		sum += x
	}
}
