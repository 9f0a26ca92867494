const queue = Array.from({ length: 120000 }, (_, i) => ({ i }));
function nextJob() { const j = queue.shift(); queue.push(j); return j.i; }
const end = Date.now() + 1000 * process.argv[2];
let n = 0; while (Date.now() < end) for (let k = 0; k < 20; k++) n += nextJob();
console.log(n);
