"""Functions whose shares of the time on CPU are given, called in all the ways that Python has; and sleeps."""
import functools
import os
import re
import threading
import time

UNIT = 0.15


def burn(units):
    end = time.thread_time() + units * UNIT
    x = 0
    while time.thread_time() < end:
        for i in range(1000):
            x += i


def plain():
    burn(2)


def key(value):
    burn(0.25)
    return value


def called_by_c():
    sorted(range(4), key=key)


def replacement(_):
    burn(0.25)
    return "x"


def called_by_re():
    re.sub("a", replacement, "aaaa")


def generator():
    for i in range(4):
        burn(0.25)
        yield i


def deep(left):
    if left:
        deep(left - 1)
    else:
        burn(1)


class Shape:
    def method(self):
        burn(1)


def thread():
    burn(1)


def settle():
    burn(1)
    time.sleep(0.3)


def forked():
    burn(1)
    time.sleep(0.3)  # of one that has ended nothing can be read


def nap():
    time.sleep(0.3)


def hostile():
    source = compile("def f():\n    burn(1)\n", "/tmp/\x1b]0;title\x07/" + 90 * "y" + "\n;.py", "exec")
    names = {"burn": burn}
    exec(source, names)
    code = names["f"].__code__
    name = "\x1b[31mred\nline;\udce9\u20ac" + 5000 * "n"
    names["f"].__code__ = code.replace(co_name=name, co_qualname=name)
    names["f"]()


def main():
    settle()
    plain()
    called_by_c()
    called_by_re()
    sum(generator())
    deep(200)
    functools.partial(Shape().method)()
    hostile()
    threads = [threading.Thread(target=thread) for _ in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    nap()
    if os.fork() == 0:
        forked()
        os._exit(0)
    os.wait()


main()
