// Events are compressed, and the compressor is flushed after each line. Twin: after 200 lines.
package main

import (
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"
)

type stream struct {
	z        *gzip.Writer
	every, n int
}

//go:noinline
func (s *stream) send(e int) {
	fmt.Fprintf(s.z, "{\"event\":%d,\"kind\":\"update\",\"value\":%d}\n", e, e*7)
	if s.n++; s.n%s.every == 0 {
		s.z.Flush()
	}
}
func main() {
	secs, _ := strconv.ParseFloat(os.Args[1], 64)
	s := &stream{z: gzip.NewWriter(io.Discard), every: 1}
	if len(os.Args) > 2 && os.Args[2] == "twin" {
		s.every = 200
	}
	n := 0
	for end := time.Now().Add(time.Duration(secs * 1e9)); time.Now().Before(end); n++ {
		s.send(n)
	}
	fmt.Println(n, "events")
}
