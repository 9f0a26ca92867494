"""500 keys are read from Redis again and again, by one GET after another. `twin`: by one MGET."""
import socket
import sys
import time

twin = len(sys.argv) > 2
stored = socket.create_connection(("127.0.0.1", 6398))
stored.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
answers = stored.makefile("rb")


def command(*words):
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


def value():
    line = answers.readline()
    if line[:1] == b"*":
        return [value() for _ in range(int(line[1:]))]
    return answers.read(int(line[1:]) + 2)[:-2] if line[:1] == b"$" else line


keys = [b"user:%d" % i for i in range(500)]
for key in keys:
    stored.sendall(command(b"SET", key, b"name of " + key))
    value()


def load_users():
    if twin:
        stored.sendall(command(b"MGET", *keys))
        return value()
    users = []
    for key in keys:
        stored.sendall(command(b"GET", key))
        users.append(value())
    return users


end, lists = time.time() + float(sys.argv[1]), 0
while time.time() < end:
    load_users()
    lists += 1
print(lists)
