// Computes for two seconds below outer: three parts of four in long, one in short. The compiler puts both into middle, and that
// into outer.
package main

import "time"

var sum uint64

func long(n uint64) uint64 {
	for i := 0; i < 30000; i++ {
		n = n*6364136223846793005 + 1
	}
	return n
}

func short(n uint64) uint64 {
	for i := 0; i < 10000; i++ {
		n = n*6364136223846793005 + 1
	}
	return n
}

func middle(n uint64) uint64 { return short(long(n)) }

//go:noinline
func outer(n uint64) uint64 { return middle(n) + 1 }

func main() {
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end); {
		sum = outer(sum)
	}
}
