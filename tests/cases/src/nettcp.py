# Counts the connections for each request by /proc/net/tcp. "fixed": by a list of its own.
import socket, sys, time

fixed = len(sys.argv) > 2
listener = socket.create_server(("127.0.0.1", 0), backlog=1000)
connections = []
for _ in range(400):
    connections += [socket.create_connection(listener.getsockname()), listener.accept()[0]]

def count_connections():
    if fixed:
        return len(connections)
    with open("/proc/net/tcp", "rb") as table:
        return table.read().count(b"\n")

end = time.monotonic() + float(sys.argv[1])
n = 0
while time.monotonic() < end:
    count_connections()
    n += 1
print(n, "requests")
