# The configuration is copied with copy.deepcopy for each request.
import copy, sys, time
config = {"section%d" % i: {"key%d" % k: [k, str(k), {"x": k}] for k in range(20)} for i in range(20)}
def handle(i):
    mine = copy.deepcopy(config)
    mine["section1"]["key1"] = i
    return len(mine)
end = time.time() + float(sys.argv[1])
n = 0
while time.time() < end:
    n += handle(n)
