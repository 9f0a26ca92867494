// The main thread waits for its workers by asking again in each turn of the event loop (setImmediate): it takes a CPU from
// them. twin: it awaits their messages.
const { Worker, isMainThread, parentPort, workerData } = require('worker_threads');
const WORKERS = 2;

function render(x) {
  for (let i = 0; i < 3000000; i++) x = (Math.imul(x, 1664525) + 1013904223) | 0;
  return x;
}

if (!isMainThread) {
  const state = new Int32Array(workerData);
  parentPort.on('message', ({ slot, x }) => {
    const y = render(x);
    Atomics.store(state, slot, 1);
    parentPort.postMessage(y);
  });
} else {
  const seconds = Number(process.argv[2] || 3);
  const fixed = process.argv[3] === 'twin';
  const shared = new SharedArrayBuffer(4 * WORKERS);
  const state = new Int32Array(shared);
  const workers = [];
  for (let i = 0; i < WORKERS; i++) workers.push(new Worker(__filename, { workerData: shared }));

  async function settle() {
    while (state.includes(0)) {
      await new Promise((done) => setImmediate(done));
    }
  }

  function answers() {
    return Promise.all(workers.map((w) => new Promise((done) => w.once('message', done))));
  }

  async function main() {
    await Promise.all(workers.map((w) => new Promise((done) => w.once('online', done))));
    const end = Date.now() + seconds * 1000;
    let rounds = 0;
    while (Date.now() < end) {
      state.fill(0);
      const told = answers();
      workers.forEach((w, slot) => w.postMessage({ slot, x: rounds + slot }));
      if (fixed) await told;
      else await settle();
      rounds++;
    }
    console.log(`${(rounds * WORKERS / seconds).toFixed(0)} pages/s`);
    process.exit(0);
  }
  main();
}
