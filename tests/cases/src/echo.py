# A client and a server that answer one another at once: healthy, they work in turn.
import os, socket, sys, time
a, b = socket.socketpair(); end = time.time() + float(sys.argv[1])
def compute(): return sum(i * i for i in range(20000))
if os.fork() == 0:
    a.close()
    while b.recv(8): compute(); b.sendall(b"answer")
    os._exit(0)
b.close()
while time.time() < end: a.sendall(b"q"); compute(); a.recv(8)
os._exit(0)
