# A regular expression that tries all ways to split a string.
import re, sys, time
end = time.time() + float(sys.argv[1])
def is_valid(line): return re.match(r"^(\w+\s?)*$", line)
def worker():
    while time.time() < end: is_valid("a b c d e f g h i j k l m!")
import os
if os.fork() == 0: worker(); os._exit(0)
worker(); os.wait()
