// A loop over large elements copies each (range by value). Twin: by index.
package main

import (
	"fmt"
	"os"
	"strconv"
	"time"
)

// An order book entry with its history in place.
type order struct {
	id      int64
	price   int64
	open    bool
	history [250]int64
}

func volume(orders []order) int64 {
	var sum int64
	for _, o := range orders {
		if o.open && o.history[o.id&127] >= 0 {
			sum += o.price
		}
	}
	return sum
}

func volumeByIndex(orders []order) int64 {
	var sum int64
	for i := range orders {
		o := &orders[i]
		if o.open && o.history[o.id&127] >= 0 {
			sum += o.price
		}
	}
	return sum
}

func main() {
	seconds, _ := strconv.ParseFloat(os.Args[1], 64)
	good := len(os.Args) > 2
	end := time.Now().Add(time.Duration(seconds * 1e9))
	orders := make([]order, 400)
	for i := range orders {
		orders[i].id, orders[i].price, orders[i].open = int64(i), int64(i*3), i%3 != 0
	}
	n, sum := 0, int64(0)
	for time.Now().Before(end) {
		for i := 0; i < 20; i++ {
			if good {
				sum += volumeByIndex(orders)
			} else {
				sum += volume(orders)
			}
			n++
		}
	}
	fmt.Println(n, "sums", sum)
}
