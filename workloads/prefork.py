#!/usr/bin/env python3
"""prefork.py WORKERS REQUESTS: a prefork HTTP server and its clients. The parent listens, WORKERS processes accept from the
shared socket and answer each request with some work; four client threads send REQUESTS altogether. Tells requests a second.
"""
import os
import random
import signal
import socket
import sys
import threading
import time
import zlib

BODY = "".join(random.Random(1).choices("abcdefghijklmnop \n", k=60000)).encode()


def serve(listener):
    while True:
        peer, _ = listener.accept()
        with peer:
            peer.recv(4096)
            answer = zlib.compress(BODY, 6)
            peer.sendall(b"HTTP/1.0 200 OK\r\nContent-Length: %d\r\n\r\n" % len(answer) + answer)


def ask(address, left):
    while left():
        with socket.create_connection(address) as peer:
            peer.sendall(b"GET / HTTP/1.0\r\n\r\n")
            while peer.recv(65536):
                pass


def main():
    workers, requests = int(sys.argv[1]), int(sys.argv[2])
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(128)
    children = []
    for _ in range(workers):
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            serve(listener)
        children.append(pid)
    lock, count = threading.Lock(), [requests]

    def left():
        with lock:
            count[0] -= 1
            return count[0] >= 0

    begin = time.monotonic()
    clients = [threading.Thread(target=ask, args=(listener.getsockname(), left)) for _ in range(4)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    print(f"{requests / (time.monotonic() - begin):.0f} requests a second")
    for pid in children:
        os.kill(pid, signal.SIGTERM)
        os.waitpid(pid, 0)


main()
