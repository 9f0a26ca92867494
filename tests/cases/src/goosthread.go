package main
import ("fmt"; "os"; "runtime"; "strconv"; "time")
func render(in, out chan int) { runtime.LockOSThread(); for v := range in { out <- v + 1 } }
func main() {
	secs, _ := strconv.Atoi(os.Args[1])
	end := time.Now().Add(time.Duration(secs) * time.Second)
	in, out := make(chan int), make(chan int)
	go render(in, out)
	n := 0
	for time.Now().Before(end) { in <- n; n = <-out }
	fmt.Println(n)
}
