# A connection for each request.
import os, socket, sys, time
listener = socket.create_server(("127.0.0.1", 0), backlog=128); child = os.fork()
if child == 0:
    while True:
        c, _ = listener.accept(); c.sendall(c.recv(64)); c.close()
end = time.time() + float(sys.argv[1])
def fetch():
    with socket.create_connection(listener.getsockname()) as s: s.sendall(b"q" * 64); s.recv(64)
while time.time() < end: fetch()
os.kill(child, 9)
