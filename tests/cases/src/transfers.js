// Healthy: two workers compute over buffers of 4 MiB that are transferred, not copied.
const { Worker, isMainThread, parentPort } = require('worker_threads')
function blur (data) {
  for (let pass = 0; pass < 6; pass++) for (let i = 1; i < data.length - 1; i++) data[i] = (data[i - 1] + data[i] * 2 + data[i + 1]) * 0.25
}
if (isMainThread) {
  const seconds = Number(process.argv[2]), end = Date.now() + seconds * 1000
  let done = 0, open = 2
  for (let i = 0; i < 2; i++) {
    const w = new Worker(__filename)
    const send = b => w.postMessage(b, [b])
    w.on('message', b => { done++; if (Date.now() < end) send(b); else { w.terminate(); if (!--open) console.log((done / seconds).toFixed(1), 'images/s') } })
    for (let k = 0; k < 2; k++) send(new ArrayBuffer(4 << 20))
  }
} else {
  parentPort.on('message', b => { blur(new Float32Array(b)); parentPort.postMessage(b, [b]) })
}
