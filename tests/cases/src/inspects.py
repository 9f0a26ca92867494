# inspect.stack() for the caller's name in each entry of an audit. "fixed": sys._getframe.
import inspect, sys, time

fixed = len(sys.argv) > 2

def audit(event):
    name = sys._getframe(1).f_code.co_name if fixed else inspect.stack()[1].function
    return name, event

def place_order(n):
    return audit("placed %d" % n)

end = time.monotonic() + float(sys.argv[1])
n = 0
while time.monotonic() < end:
    place_order(n)
    n += 1
print(n, "orders")
