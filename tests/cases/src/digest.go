// Healthy: GOMAXPROCS workers hash cached files of 4 MiB, each with a buffer of its own.
package main

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

func digest(path string, buffer []byte) byte {
	f, err := os.Open(path)
	if err != nil {
		panic(err)
	}
	defer f.Close()
	h := sha256.New()
	for {
		n, err := f.Read(buffer)
		h.Write(buffer[:n])
		if err != nil {
			return h.Sum(nil)[0]
		}
	}
}

func main() {
	seconds, _ := strconv.Atoi(os.Args[1])
	dir, _ := os.MkdirTemp("", "digest")
	defer os.RemoveAll(dir)
	for i := 0; i < 8; i++ {
		os.WriteFile(filepath.Join(dir, strconv.Itoa(i)), make([]byte, 4<<20), 0o600)
	}
	jobs := make(chan string, 8)
	var done atomic.Int64
	var group sync.WaitGroup
	for i := 0; i < runtime.GOMAXPROCS(0); i++ {
		group.Add(1)
		go func() {
			defer group.Done()
			buffer := make([]byte, 256<<10)
			for path := range jobs {
				digest(path, buffer)
				done.Add(1)
			}
		}()
	}
	end := time.Now().Add(time.Duration(seconds) * time.Second)
	for i := 0; time.Now().Before(end); i++ {
		jobs <- filepath.Join(dir, strconv.Itoa(i%8))
	}
	close(jobs)
	group.Wait()
	fmt.Println(done.Load()/int64(seconds), "files/s")
}
