// Each message to a worker is a structured clone of all rows.
const { Worker, isMainThread, parentPort } = require("worker_threads");
if (isMainThread) {
  const end = Date.now() + 1000 * process.argv[2], w = new Worker(__filename);
  const rows = Array.from({ length: 20000 }, (_, i) => ({ id: i, name: "row" + i, tags: ["a", "b"] }));
  function ask() { w.postMessage(rows); }
  w.on("message", () => (Date.now() < end ? ask() : w.terminate()));
  ask();
} else parentPort.on("message", (rows) => parentPort.postMessage(rows));
