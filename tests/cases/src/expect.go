// Expect: 100-continue to a server that never sends 100: each upload waits for the time limit.
package main
import ("bufio";"bytes";"fmt";"io";"net";"net/http";"os";"strconv";"sync";"sync/atomic";"time")
func serve(c net.Conn) {
	r := bufio.NewReader(c)
	for {
		req, err := http.ReadRequest(r)
		if err != nil { c.Close(); return }
		io.Copy(io.Discard, req.Body)
		fmt.Fprint(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
	}
}
func upload(client *http.Client, url string, body []byte, good bool) error {
	req, _ := http.NewRequest("POST", url, bytes.NewReader(body))
	if !good { req.Header.Set("Expect", "100-continue") }
	resp, err := client.Do(req)
	if err != nil { return err }
	io.Copy(io.Discard, resp.Body)
	return resp.Body.Close()
}
func main() {
	secs, _ := strconv.Atoi(os.Args[1])
	good := len(os.Args) > 2 && os.Args[2] == "good"
	l, _ := net.Listen("tcp", "127.0.0.1:0")
	go func() { for { c, err := l.Accept(); if err != nil { return }; go serve(c) } }()
	client := &http.Client{Transport: &http.Transport{ExpectContinueTimeout: 300 * time.Millisecond, MaxIdleConnsPerHost: 8}}
	body := bytes.Repeat([]byte("x"), 20000)
	end := time.Now().Add(time.Duration(secs) * time.Second)
	var n atomic.Int64
	var wg sync.WaitGroup
	for i := 0; i < 4; i++ {
		wg.Add(1)
		go func() { defer wg.Done(); for time.Now().Before(end) { if upload(client, "http://"+l.Addr().String()+"/", body, good) == nil { n.Add(1) } } }()
	}
	wg.Wait()
	fmt.Println(n.Load()/int64(secs), "uploads/s")
}
