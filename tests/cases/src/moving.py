# A moving window of samples is kept in a deque, and read by position.
import sys, time
from collections import deque
good = sys.argv[2:] == ['twin']
WINDOW = 40000
window = deque((float(i % 97) for i in range(WINDOW)), maxlen=WINDOW)

def smooth(values, step):
    total = 0.0
    for i in range(step, len(values) - step, step):
        total += (values[i - step] + values[i] + values[i + step]) / 3
    return total

def update(x):
    window.append(x)
    return smooth(list(window) if good else window, 7)

end, n = time.monotonic() + float(sys.argv[1]), 0
while time.monotonic() < end:
    update(float(n % 91))
    n += 1
print(n, 'updates')
