# An exact sum of money of many digits is written as a decimal to learn how long it is, for each step: int to str takes time
# by the square of the digits. twin: by bit_length.
import sys
import time

FIXED = len(sys.argv) > 2 and sys.argv[2] == "twin"


def length(n):
    if FIXED:
        guess = (n.bit_length() - 1) * 1233 >> 12
        return guess + 1
    return len(str(n))


def step(n):
    n = n * 10007 + 12345
    return n >> 5000 if n.bit_length() > 12000 else n


def main():
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 3.0
    end = time.monotonic() + seconds
    n, steps, total = 7 ** 2000, 0, 0
    while time.monotonic() < end:
        for _ in range(50):
            n = step(n)
            total += length(n)
            steps += 1
    print(f"{steps / seconds:.0f} steps/s ({total % 10})")


main()
