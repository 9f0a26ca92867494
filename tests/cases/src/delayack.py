# write, write, read over TCP without TCP_NODELAY: Nagle holds the second write until the delayed ACK, 40 ms.
import os, socket, sys, time
listener = socket.create_server(("127.0.0.1", 0))
if os.fork() == 0:
    peer, _ = listener.accept()
    while True:
        need = 300
        while need:
            got = peer.recv(need)
            if not got: os._exit(0)
            need -= len(got)
        peer.sendall(b"done")
s = socket.create_connection(listener.getsockname())
def request():
    s.sendall(b"h" * 100); s.sendall(b"b" * 200); s.recv(4)
end = time.time() + float(sys.argv[1])
while time.time() < end: request()
