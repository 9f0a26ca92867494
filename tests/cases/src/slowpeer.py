# Each request waits 20 ms for a server that sleeps.
import os, socket, sys, time
listener = socket.create_server(("127.0.0.1", 0))
if os.fork() == 0:
    peer, _ = listener.accept(); peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while peer.recv(64): time.sleep(.02); peer.sendall(b"answer")
    os._exit(0)
s = socket.create_connection(listener.getsockname()); s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1); end = time.time() + float(sys.argv[1])
def query(): s.sendall(b"q" * 64); s.recv(64)
while time.time() < end: query()
