// An index of 60 MB under GOMEMLIMIT; requests allocate. "lift" lifts the limit.
package main

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"time"
)

type entry struct {
	next *entry
	key  string
	sum  [4]uint64
}

var index []*entry

func handle(n int) int {
	rows := make([]*entry, 0, 64)
	for i := 0; i < 64; i++ {
		e := &entry{key: strconv.Itoa(n + i)}
		if i > 0 {
			e.next = rows[i-1]
		}
		rows = append(rows, e)
	}
	total := 0
	for e := rows[63]; e != nil; e = e.next {
		total += len(e.key)
	}
	return total
}

func main() {
	seconds, _ := strconv.Atoi(os.Args[1])
	if len(os.Args) > 2 {
		debug.SetMemoryLimit(1 << 40)
	}
	for i := 0; i < 700000; i++ {
		index = append(index, &entry{key: strconv.Itoa(i)})
	}
	end := time.Now().Add(time.Duration(seconds) * time.Second)
	n, total := 0, 0
	for time.Now().Before(end) {
		for i := 0; i < 100; i++ {
			total += handle(n)
			n++
		}
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	fmt.Println(n/seconds, "requests/s", m.NumGC, "collections", m.HeapAlloc>>20, "MiB", len(index), total)
}
