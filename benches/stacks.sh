#!/bin/bash
# How many user stacks reach the function that their thread began with: of ncpu run, which copies up to 16 KiB of the top
# of the stack and unwinds them itself, and of perf record with frame pointers and with --call-graph dwarf (8 KiB), on
# programs as distributions build them. And what was written for it.
# usage: benches/stacks.sh [NAME...]      needs root; perf, and of python3, node, java, go, rustc, postgres, nginx (with wrk)
# what is there
set -u
cd "$(dirname "$0")/.." || exit 1
ncpu=${NCPU:-target/release/ncpu}
dir=$(mktemp -d)
trap '[ -z "${server:-}" ] || su postgres -c "$pg/pg_ctl -D $dir/db -m immediate stop" >/dev/null; rm -rf "$dir"' EXIT

cat >"$dir/deep.py" <<'X'
import json, re, time
def work(n):
    if n: return work(n - 1)
    text = json.dumps([{"a": i, "b": str(i)} for i in range(200)])
    return len(re.findall(r'"a": (\d+)', text)) + len(json.loads(text))
end = time.monotonic() + 3
while time.monotonic() < end: work(20)
X
cat >"$dir/deep.js" <<'X'
function work(n) { return n ? work(n - 1) : JSON.parse(JSON.stringify(Array.from({ length: 200 }, (_, i) => ({ a: i })))).length; }
for (const end = Date.now() + 3000; Date.now() < end;) work(20);
X
cat >"$dir/Deep.java" <<'X'
public class Deep {
    static int work(int n) { return n > 0 ? work(n - 1) + 1 : java.util.stream.IntStream.range(0, 300).boxed().map(String::valueOf).collect(java.util.stream.Collectors.joining()).length(); }
    public static void main(String[] a) { for (long end = System.nanoTime() + 3000000000L; System.nanoTime() < end;) work(20); }
}
X
cat >"$dir/deep.go" <<'X'
package main
import ("encoding/json"; "time")
func work(n int) int { if n > 0 { return work(n-1) + 1 }; b, _ := json.Marshal(make(map[string][]int, 3)); var v any; json.Unmarshal([]byte(`[1,2,{"a":[3,4,"five"]}]`), &v); return len(b) }
func main() { for end := time.Now().Add(3 * time.Second); time.Now().Before(end); { work(20) } }
X
cat >"$dir/deep.rs" <<'X'
use std::collections::BTreeMap;
#[inline(never)]
fn work(n: u32) -> usize { if n > 0 { return std::hint::black_box(work(n - 1)) + 1; } (0..300).map(|i| (format!("{i}"), i)).collect::<BTreeMap<_, _>>().len() }
fn main() { let end = std::time::Instant::now(); while end.elapsed().as_secs() < 3 { std::hint::black_box(work(20)); } }
X

begins='^(_start|__libc_start_main.*|__libc_start_call_main|start_thread|__clone3?|clone3?|thread_start|runtime[.](goexit|mstart|rt0_go|mcall|systemstack).*|_rt0_amd64.*)$'
# Stacks of `perf script`, the outermost frame last: how many begin as threads do.
whole() {
  perf script -i "$1" -F ip,sym 2>/dev/null | awk -v begins="$begins" '
    /^$/ { if (last != "") { n++; if (last ~ begins) whole++ } last = ""; next }
    { $1 = ""; sub(/^ /, ""); sub(/\+0x[0-9a-f]+$/, ""); last = $0 }
    END { printf "%5.1f %% of %5d, %8.1f MB", n ? 100 * whole / n : 0, n, size / 1e6 }' size="$(stat -c %s "$1")"
}
one() {
  name=$1 && shift
  printf '%-10s' "$name"
  "$ncpu" run --record "$dir/$name.ncpu" -- "$@" >/dev/null 2>&1
  "$ncpu" report "$dir/$name.ncpu" --table events -o csv 2>/dev/null | awk -F, '
    $2 == "stacks unwound" { n += $3 } $2 == "stacks whole" { whole += $3 }
    END { printf "ncpu %5.1f %% of %5d", n ? 100 * whole / n : 0, n }'
  for graph in dwarf fp; do
    perf record -q -F 99 --call-graph $graph -o "$dir/$graph.data" -- "$@" >/dev/null 2>&1
    printf '   perf %-5s %s' "$graph" "$(whole "$dir/$graph.data")"
  done
  echo
}
have() { command -v "$1" >/dev/null || { echo "$1: not here"; return 1; }; }
names=" $* "
asked() { [ "$names" = "  " ] || [[ $names == *" $1 "* ]]; }
# Of a server, process $2, while a command loads it.
serving() {
  local name=$1 pid=$2 && shift 2
  printf '%-10s' "$name"
  "$@" >/dev/null 2>&1 &
  local load=$!
  "$ncpu" watch 3 -p "$pid" --table events -o csv 2>/dev/null | awk -F, '
    $2 == "stacks unwound" { n += $3 } $2 == "stacks whole" { whole += $3 }
    END { printf "ncpu %5.1f %% of %5d", n ? 100 * whole / n : 0, n }'
  wait $load
  for graph in dwarf fp; do
    "$@" >/dev/null 2>&1 &
    load=$!
    sleep 0.5
    perf record -q -F 99 --call-graph $graph -o "$dir/$graph.data" -p "$(pgrep -d, -P "$pid")" -- sleep 3 >/dev/null 2>&1
    printf '   perf %-5s %s' "$graph" "$(whole "$dir/$graph.data")"
    wait $load
  done
  echo
}
asked python3 && have /usr/bin/python3 && one python3 /usr/bin/python3 "$dir/deep.py"
asked node && have node && one node node "$dir/deep.js"
asked java && have javac && javac -d "$dir" "$dir/Deep.java" && one java java -cp "$dir" Deep &&
  one java-fp java -XX:+PreserveFramePointer -cp "$dir" Deep
asked go && have go && (cd "$dir" && GOTOOLCHAIN=local go build -o deep-go deep.go) && one go "$dir/deep-go"
asked rust && have rustc && rustc -O -o "$dir/deep-rust" "$dir/deep.rs" && one rust "$dir/deep-rust"
pg=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | tail -1)
if asked postgres && [ -n "$pg" ] && id postgres >/dev/null 2>&1; then
  chmod 755 "$dir" && install -d -o postgres "$dir/db" "$dir/socket"
  su postgres -c "$pg/initdb -D $dir/db -A trust" >/dev/null 2>&1
  su postgres -c "$pg/pg_ctl -w -D $dir/db -o '-k $dir/socket -p 5499 -c listen_addresses=' start" >/dev/null && server=1
  su postgres -c "$pg/pgbench -q -i -s 5 -h $dir/socket -p 5499 postgres" >/dev/null 2>&1
  serving postgres "$(head -1 "$dir/db/postmaster.pid")" \
    su postgres -c "$pg/pgbench -S -c 4 -T 4 -h $dir/socket -p 5499 postgres"
fi
if asked nginx && have nginx && have wrk; then
  chmod 755 "$dir" && mkdir "$dir/www" && seq 20000 >"$dir/www/numbers.txt"
  cat >"$dir/nginx.conf" <<X
daemon off; master_process on; worker_processes 2; pid $dir/nginx.pid; error_log $dir/nginx.log;
events { }
http { access_log off; gzip on; gzip_types text/plain; types { text/plain txt; }
  client_body_temp_path $dir; proxy_temp_path $dir; fastcgi_temp_path $dir; uwsgi_temp_path $dir; scgi_temp_path $dir;
  server { listen 127.0.0.1:5498; root $dir/www; } }
X
  nginx -c "$dir/nginx.conf" &
  nginx=$!
  sleep 1
  serving nginx $nginx wrk -t 1 -c 4 -d 4 -H 'Accept-Encoding: gzip' http://127.0.0.1:5498/numbers.txt
  kill $nginx
fi
