package main
import ("fmt"; "os"; "strconv"; "sync"; "time")
func sieve(n int) int { c := make([]bool, n); k := 0; for i := 2; i < n; i++ { if !c[i] { k++; for j := 2 * i; j < n; j += i { c[j] = true } } }; return k }
func main() { secs, _ := strconv.Atoi(os.Args[1]); end := time.Now().Add(time.Duration(secs) * time.Second); var w sync.WaitGroup
	for g := 0; g < 2; g++ { w.Add(1); go func() { defer w.Done(); n := 0; for time.Now().Before(end) { n += sieve(200000) }; fmt.Println(n) }() }; w.Wait() }
