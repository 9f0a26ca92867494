# Rows are written as JSON with indent: the encoder of Python then is Python code.
import json
import sys
import time

rows = [{"id": i, "name": f"name {i}", "tags": ["a", "b", "c"]} for i in range(20000)]
end = time.monotonic() + float(sys.argv[1])
done = 0


def send(rows):
    return len(json.dumps(rows, indent=1))


while time.monotonic() < end:
    send(rows)
    done += 1
print(done)
