// An abort listener for each request stays on a signal that lives as long as the program.
const { setMaxListeners } = require('node:events');
const secs = +process.argv[2], good = process.argv[3] === 'good';
const controller = new AbortController();
setMaxListeners(0, controller.signal);
function parse(body) { let h = 0; for (let i = 0; i < body.length; i++) h = (h * 31 + body.charCodeAt(i)) | 0; return h; }
const body = 'x'.repeat(600);
async function fetchWithAbort(signal) {
  let stop;
  const aborted = new Promise((_, reject) => { stop = () => reject(new Error('aborted')); signal.addEventListener('abort', stop, { once: true }); });
  aborted.catch(() => {});
  const answer = await Promise.race([Promise.resolve(parse(body)), aborted]);
  if (good) signal.removeEventListener('abort', stop);
  return answer;
}
async function main() {
  const end = Date.now() + secs * 1000; let n = 0;
  while (Date.now() < end) { await fetchWithAbort(controller.signal); if (++n % 50 === 0) await new Promise(setImmediate); }
  console.log(Math.round(n / secs), 'requests/s');
}
main();
