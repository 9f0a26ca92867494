// Lines are taken apart by fmt.Sscanf; "twin" cuts them by hand.
package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

type station struct {
	name string
	x, y int
}

//go:noinline
func parse(line string, twin bool) (s station) {
	if !twin {
		fmt.Sscanf(line, "%s %d %d", &s.name, &s.x, &s.y)
		return
	}
	name, rest, _ := strings.Cut(line, " ")
	x, y, _ := strings.Cut(rest, " ")
	s.name = name
	s.x, _ = strconv.Atoi(x)
	s.y, _ = strconv.Atoi(y)
	return
}

func main() {
	seconds, _ := strconv.ParseFloat(os.Args[1], 64)
	twin := len(os.Args) > 2
	end := time.Now().Add(time.Duration(seconds * 1e9))
	lines, sum := 0, 0
	for time.Now().Before(end) {
		for i := 0; i < 200; i++ {
			s := parse("station 12345 67890", twin)
			sum += s.x + len(s.name)
			lines++
		}
	}
	fmt.Println(float64(lines)/seconds, "lines a second", sum&1)
}
