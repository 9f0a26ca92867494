# A monitor reads the state of all processes again and again.
import os, sys, time
def sample():
    for p in os.listdir("/proc"):
        if p.isdigit():
            try: open(f"/proc/{p}/stat").read()
            except OSError: pass
end = time.time() + float(sys.argv[1])
while time.time() < end: sample()
