// Each error of a look-up that finds nothing takes a stack. Twin "fixed": one error for all.
package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"time"
)

type withStack struct {
	text  string
	stack []uintptr
}

func (e *withStack) Error() string { return e.text }

var errNotFound = errors.New("not found")
var stacks = true

//go:noinline
func newError(text string) error {
	if !stacks {
		return errNotFound
	}
	callers := make([]uintptr, 32)
	return &withStack{text, callers[:runtime.Callers(2, callers)]}
}

//go:noinline
func lookup(table map[int]int, key, depth int) (int, error) {
	if depth > 0 {
		return lookup(table, key, depth-1)
	}
	if value, found := table[key]; found {
		return value, nil
	}
	return 0, newError("not found")
}

func main() {
	seconds, _ := strconv.ParseFloat(os.Args[1], 64)
	stacks = len(os.Args) == 2
	table := map[int]int{}
	for i := 0; i < 100; i++ {
		table[i*1000] = i
	}
	end := time.Now().Add(time.Duration(seconds * 1e9))
	n, missing := 0, 0
	for time.Now().Before(end) {
		for i := 0; i < 1000; i++ {
			if _, err := lookup(table, n+i, 20); err != nil {
				missing++
			}
		}
		n += 1000
	}
	fmt.Println(n, "look-ups,", missing, "missing")
}
