package main
import ("fmt"; "os"; "regexp"; "strconv"; "time")
func isValid(s string) bool { return regexp.MustCompile(`^[a-z]+-(\d{2,5})(-[A-F0-9]{4})?$`).MatchString(s) }
func main() {
	secs, _ := strconv.Atoi(os.Args[1])
	end := time.Now().Add(time.Duration(secs) * time.Second)
	n := 0
	for time.Now().Before(end) { if isValid("order-" + strconv.Itoa(n%100000)) { n++ } else { n += 2 } }
	fmt.Println(n)
}
