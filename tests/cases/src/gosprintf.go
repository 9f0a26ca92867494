package main
import ("fmt"; "os"; "strconv"; "time")
func key(user, item int) string { return fmt.Sprintf("user:%d:item:%05d", user, item) }
func main() {
	secs, _ := strconv.Atoi(os.Args[1])
	end := time.Now().Add(time.Duration(secs) * time.Second)
	n := 0
	for time.Now().Before(end) { for i := 0; i < 1000; i++ { n += len(key(i, n)) } }
	fmt.Println(n)
}
