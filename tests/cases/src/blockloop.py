# A handler of an event loop sleeps by time.sleep: all clients wait for it.
import asyncio, os, socket, sys, threading, time
end = time.time() + float(sys.argv[1])

def legacy_lookup():
    time.sleep(0.01)

async def handle(reader, writer):
    while data := await reader.read(100):
        legacy_lookup()
        writer.write(data)

async def serve():
    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    if os.fork() == 0:
        clients(port)
        os._exit(0)
    while time.time() < end:
        await asyncio.sleep(0.1)

def client(port):
    s = socket.create_connection(("127.0.0.1", port))
    while time.time() < end - 0.2:
        s.sendall(b"x")
        s.recv(100)

def clients(port):
    all = [threading.Thread(target=client, args=(port,)) for _ in range(6)]
    [t.start() for t in all]
    [t.join() for t in all]

asyncio.run(serve())
