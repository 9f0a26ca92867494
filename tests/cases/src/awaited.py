"""A pool of eight threads, each task's result awaited before the next is submitted. A task asks a service, which takes 5 ms."""
import os
import socket
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor


def serve(listener):
    def answer(connection):
        while connection.recv(64):
            time.sleep(0.005)
            connection.sendall(b"42\n")

    while True:
        threading.Thread(target=answer, args=(listener.accept()[0],), daemon=True).start()


listener = socket.create_server(("127.0.0.1", 0), backlog=64)
server = os.fork()
if server == 0:
    serve(listener)
local = threading.local()


def fetch(item):
    if not hasattr(local, "connection"):
        local.connection = socket.create_connection(listener.getsockname())
    local.connection.sendall(b"get %d\n" % item)
    return int(local.connection.recv(64))


end, done = time.time() + float(sys.argv[1]), 0
with ThreadPoolExecutor(8) as pool:
    while time.time() < end:
        done += pool.submit(fetch, done).result() > 0
print(done)
os.kill(server, 9)
