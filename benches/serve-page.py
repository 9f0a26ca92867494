"""The work of serve-page.sh: starts an invented machine and a browser, and measures."""

import base64
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request

bin, cpus, threads, pictures = sys.argv[1:5]
SECONDS = 60


def ask(url, body=None, method=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
    with urllib.request.urlopen(request, timeout=120) as answer:
        return answer.read()


def main():
    machine = subprocess.Popen(
        [f"{bin}/examples/made-up", cpus, threads, "127.0.0.1:0"], stdout=subprocess.PIPE, text=True
    )
    driver = subprocess.Popen(["chromedriver", "--port=0"], stdout=subprocess.PIPE, text=True)
    profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
    try:
        site = re.search(r"http://[0-9.:]+", machine.stdout.readline()).group(0)
        port = next(m.group(1) for m in (re.search(r"successfully on port (\d+)", l) for l in driver.stdout) if m)
        while True:
            held = json.loads(ask(f"{site}/api/v1/status"))["held"]
            if held and held["intervals"] >= SECONDS:
                break
            time.sleep(0.2)
        print(f"{cpus} CPUs, {threads} threads, {held['intervals']} intervals held in {held['bytes'] / 1e6:.0f} MB")
        for what, path in [
            ("threads over a minute", "/api/v1/tables/threads?from=-60&k=CPU&top=100"),
            ("threads over a minute, all", "/api/v1/tables/threads?from=-60"),
            ("onion over a minute", "/api/v1/tables/layers?from=-60"),
            ("CPUs over a minute", "/api/v1/tables/cpu_time?from=-60&each=0"),
            ("stacks over a minute", "/folded/cpu?from=-60"),
        ]:
            begun = time.monotonic()
            size = len(ask(site + path))
            print(f"{what}: {time.monotonic() - begun:.2f} s, {size / 1e3:.0f} KB")

        args = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
                "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage",
                "--window-size=1400,1000", f"--user-data-dir={profile.name}"]
        wanted = {"capabilities": {"alwaysMatch": {"goog:chromeOptions": {"args": args}}}}
        base = f"http://127.0.0.1:{port}/session"
        base += "/" + json.loads(ask(base, wanted))["value"]["sessionId"]

        def run(script, kind="sync"):
            return json.loads(ask(f"{base}/execute/{kind}", {"script": script, "args": []}))["value"]

        def picture(name):
            if pictures:
                os.makedirs(pictures, exist_ok=True)
                shot = json.loads(ask(f"{base}/screenshot"))["value"]
                with open(f"{pictures}/{name}.png", "wb") as file:
                    file.write(base64.b64decode(shot))

        def until(script):
            end = time.monotonic() + 60
            while not run(script):
                assert time.monotonic() < end, script
                time.sleep(0.05)

        ask(f"{base}/timeouts", {"script": 60000})
        ask(f"{base}/url", {"url": f"{site}/#span=60"})
        until("return document.querySelectorAll('#rows .row').length > 5")
        paints = run("return performance.getEntriesByType('paint').map(p => [p.name, p.startTime])")
        for name, at in paints:
            print(f"{name}: {at:.0f} ms")
        print(f"a table shown: {run('return performance.now()'):.0f} ms at most")
        until("return document.body.ariaBusy === 'false'")
        print(f"all shown: {run('return performance.now()'):.0f} ms at most")
        picture("page")
        # Frames while rows are scrolled, and while the pointer goes over the CPUs.
        frames = """
            const done = arguments[arguments.length - 1], times = [];
            const step = (now) => { times.push(now); MOVE; times.length < 181 ? requestAnimationFrame(step) :
              done(times.slice(1).map((t, i) => t - times[i])); };
            requestAnimationFrame(step);"""
        for what, move in [
            ("rows", "document.querySelector('#rows').scrollTop += 120"),
            ("the page", "scrollTo(0, 40 * (times.length % 60))"),
            ("the CPUs", """{ const g = document.querySelector('#grid'), r = g.getBoundingClientRect();
              g.dispatchEvent(new PointerEvent('pointermove', { clientX: r.left + times.length * 5, clientY: r.top + 40 })) }"""),
        ]:
            lengths = sorted(run(frames.replace("MOVE", move), "async"))
            n = len(lengths)
            print(f"frames over {what}: mean {n * 1000 / sum(lengths):.1f} a second, "
                  f"95 % within {lengths[n * 95 // 100]:.1f} ms, longest {lengths[-1]:.1f} ms")
        run("document.querySelector('#cpus').scrollIntoView({ behavior: 'instant' })")
        picture("cpus")
        run("document.querySelector('#compare').click(); document.querySelector('#stacks').scrollIntoView({ behavior: 'instant' })")
        until("return location.hash.includes('compare') && document.body.ariaBusy === 'false'")
        picture("stacks")
        ask(base, method="DELETE")
    finally:
        driver.terminate()
        machine.terminate()
        driver.wait()
        machine.wait()


main()
