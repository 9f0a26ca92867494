#!/bin/bash
# nginx.sh WORKERS SECONDS: an nginx of WORKERS processes that serves a small file, and wrk for SECONDS. Prints requests a second.
set -euo pipefail
dir=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null; wait; rm -rf "$dir"' EXIT
chmod 755 "$dir"
echo hello >"$dir/index.html"
cat >"$dir/nginx.conf" <<-END
	worker_processes $1;
	pid $dir/pid;
	error_log /dev/null;
	daemon off;
	events { }
	http { access_log off; server { listen 127.0.0.1:17380; root $dir; } }
END
nginx -c "$dir/nginx.conf" &
until [ -s "$dir/pid" ]; do sleep 0.05; done
wrk -t 2 -c 16 -d "$2s" http://127.0.0.1:17380/index.html | awk '/^Requests\/sec/ { print $2 " requests/s" }'
