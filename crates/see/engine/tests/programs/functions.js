// Functions with given shares of the time, in the ways in which JavaScript calls. The text has letters beyond Latin: €.
const { Worker, isMainThread } = require("worker_threads");

const UNIT = 150;

// Time in which the thread has no CPU counts a millisecond at most.
function burn(units) {
  let left = units * UNIT;
  let last = performance.now();
  let sum = 0;
  while (left > 0) {
    for (let i = 0; i < 1000; i++) sum = (sum * 31 + i) % 1000003;
    const now = performance.now();
    left -= Math.min(now - last, 1);
    last = now;
  }
  return sum;
}

function settle() {
  burn(3);
}

function plain() {
  return burn(2);
}

class Shape {
  method() {
    return burn(1);
  }
}

const arrow = () => burn(1);

const named = {
  "red\u001b[31m\nline;\u20ac"() {
    return burn(1);
  },
};

function compare(a, b) {
  burn(1);
  return a - b;
}

function* produce() {
  burn(1);
  yield 1;
}

async function later() {
  await null;
  burn(1);
}

function nap() {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 2 * UNIT);
}

function inThread() {
  burn(2);
}

async function main() {
  settle();
  plain();
  new Shape().method();
  arrow();
  Object.values(named)[0]();
  [2, 1].sort(compare);
  [...produce()];
  await later();
  nap();
  await new Promise((done) => new Worker(__filename).on("exit", done));
}

if (isMainThread) main();
else inThread();
