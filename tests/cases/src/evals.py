# A rule is evaluated from its text for each row. "fixed": it is compiled once.
import sys, time

rule = "price * amount * (1 - rebate / 100) if amount > 3 and rebate > 0 else price * amount"
if len(sys.argv) > 2:
    rule = compile(rule, "rule", "eval")

def apply_rule(row):
    return eval(rule, {"__builtins__": {}}, row)

rows = [{"price": i % 97, "amount": i % 7, "rebate": i % 5} for i in range(1000)]
end = time.monotonic() + float(sys.argv[1])
n = 0
while time.monotonic() < end:
    sum(apply_rule(row) for row in rows)
    n += len(rows)
print(n, "rows")
