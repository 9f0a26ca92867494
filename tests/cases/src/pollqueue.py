# A worker looks into its queue every 10 ms; its client waits for each answer.
import collections, sys, threading, time
todo, done, stop = collections.deque(), threading.Event(), False
def polling_worker():
    while not stop:
        if todo: todo.popleft(); sum(range(1000)); done.set()
        else: time.sleep(0.01)
threading.Thread(target=polling_worker).start()
end = time.time() + float(sys.argv[1])
while time.time() < end: done.clear(); todo.append(1); done.wait()
stop = True
