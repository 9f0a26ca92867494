package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"time"
)

type Order struct {
	Id    int
	Items []string
	Notes map[string]string
}

//go:noinline
func answer(o *Order) int { b, _ := json.Marshal(o); return len(b) }

func main() {
	s, _ := strconv.ParseFloat(os.Args[1], 64)
	end := time.Now().Add(time.Duration(s * 1e9))
	o := &Order{1, []string{"a", "b", "c", "d"}, map[string]string{"x": "y", "z": "w"}}
	n := 0
	for time.Now().Before(end) {
		n += answer(o)
	}
	fmt.Println(n)
}
