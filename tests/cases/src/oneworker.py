# Sixteen clients submit to a ThreadPoolExecutor of one worker, which waits 5 ms for its backend each time. "fixed": sixteen workers.
import concurrent.futures, socket, sys, threading, time

fixed = len(sys.argv) > 2
end = time.time() + float(sys.argv[1])
listener = socket.create_server(("127.0.0.1", 0), backlog=100)

def backend(connection):
    while connection.recv(64):
        time.sleep(0.005)
        connection.sendall(b"7")

def accept():
    while True:
        threading.Thread(target=backend, args=(listener.accept()[0],), daemon=True).start()

def ask_backend(question):
    if not hasattr(own, "connection"):
        own.connection = socket.create_connection(listener.getsockname())
    own.connection.sendall(question)
    return own.connection.recv(64)

def client(number):
    while time.time() < end:
        executor.submit(ask_backend, b"price").result()
        asked[number] += 1

own, asked = threading.local(), [0] * 16
threading.Thread(target=accept, daemon=True).start()
executor = concurrent.futures.ThreadPoolExecutor(max_workers=16 if fixed else 1)
clients = [threading.Thread(target=client, args=(number,)) for number in range(16)]
for thread in clients:
    thread.start()
for thread in clients:
    thread.join()
print(f"{sum(asked)} answers")
