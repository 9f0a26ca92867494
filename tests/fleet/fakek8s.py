# A stand-in for the Kubernetes API that runs each worker pod as a process of this machine: fakek8s.py SAIL PORT LOGS
import http.server
import json
import os
import signal
import subprocess
import sys

SAIL, PORT, LOGS = sys.argv[1], int(sys.argv[2]), sys.argv[3]
workers = []


class Api(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def out(self, answer, status=200):
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        pod = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        env = dict(os.environ)
        for e in pod["spec"]["containers"][0]["env"]:
            env[e["name"]] = e["value"] if "value" in e else "127.0.0.1"
        env["SAIL_CLUSTER__WORKER_LISTEN_HOST"] = "127.0.0.1"
        log = open(f"{LOGS}/worker{len(workers)}.log", "w")
        workers.append(subprocess.Popen([SAIL, "worker"], env=env, stdout=log, stderr=subprocess.STDOUT))
        print("worker", workers[-1].pid, flush=True)
        pod["metadata"]["uid"] = "u%d" % len(workers)
        pod["status"] = {"phase": "Running"}
        self.out(pod, 201)

    def do_GET(self):
        self.out({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": []})

    def do_DELETE(self):
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        end()
        self.do_GET()

    def log_message(self, *a):
        print(self.path, *a, flush=True)


def end(*_):
    for worker in workers:
        worker.terminate()


def stop(*_):
    end()
    sys.exit(0)


signal.signal(signal.SIGTERM, stop)
http.server.ThreadingHTTPServer(("127.0.0.1", PORT), Api).serve_forever()
