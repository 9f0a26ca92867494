// A map that was once large is kept and cleared for each small document. Twin: a new map for each.
package main

import (
	"fmt"
	"os"
	"strconv"
	"time"
)

type indexer struct {
	seen map[uint64]int
	good bool
}

//go:noinline
func (x *indexer) reset() {
	if x.good {
		x.seen = make(map[uint64]int)
		return
	}
	clear(x.seen)
}

//go:noinline
func (x *indexer) index(words []uint64) int {
	for _, w := range words {
		x.seen[w]++
	}
	most := 0
	for _, w := range words {
		if n := x.seen[w]; n > most {
			most = n
		}
	}
	return most
}
func main() {
	secs, _ := strconv.ParseFloat(os.Args[1], 64)
	x := &indexer{seen: map[uint64]int{}, good: len(os.Args) > 2 && os.Args[2] == "twin"}
	large := make([]uint64, 400000)
	for i := range large {
		large[i] = uint64(i) * 0x9E3779B97F4A7C15
	}
	x.index(large)
	x.reset()
	small := make([]uint64, 200)
	done := 0
	for end := time.Now().Add(time.Duration(secs * 1e9)); time.Now().Before(end); done++ {
		for i := range small {
			small[i] = uint64((done*131+i*7)%900) * 0x9E3779B97F4A7C15
		}
		x.index(small)
		x.reset()
	}
	fmt.Println(done, "documents")
}
