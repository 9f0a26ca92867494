'use strict';
const { createHook, executionAsyncId } = require('async_hooks');

const open = new Map();
let seen = 0;

function startTracing() {
  createHook({
    init(id, type, trigger) { open.set(id, trigger); },
    before(id) { seen++; },
    after(id) { seen++; },
    promiseResolve(id) { open.delete(id); },
    destroy(id) { open.delete(id); },
  }).enable();
}

async function authorize(request) {
  return request.user % 97 !== 0;
}

async function loadOrder(request) {
  const lines = [];
  for (let i = 0; i < 4; i++) lines.push(await priceOf(request.id + i));
  return lines;
}

async function priceOf(item) {
  return (item * 2654435761) % 9973;
}

async function handle(request) {
  if (!(await authorize(request))) return 0;
  const lines = await loadOrder(request);
  return lines.reduce((sum, price) => sum + price, 0);
}

async function main() {
  const until = Date.now() + 1000 * Number(process.argv[2]);
  if (process.argv.length < 4) startTracing();
  let served = 0, total = 0;
  while (Date.now() < until) {
    for (let i = 0; i < 100; i++) total += await handle({ id: served + i, user: i });
    served += 100;
    if (open.size > 10000) open.clear();
    await new Promise(setImmediate);
  }
  console.log(`${served} requests, ${total}, ${seen}`);
}

main();
