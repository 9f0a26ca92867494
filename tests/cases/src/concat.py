# Bytes are put together one after another: each step copies all that there is.
import sys, time
def append_all(parts):
    out = b""
    for p in parts: out = out + p
    return out
end = time.time() + float(sys.argv[1]); parts = [b"x" * 1000] * 4000
while time.time() < end: append_all(parts)
