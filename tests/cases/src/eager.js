// A debug line is built for each event, although nobody reads it.
const level = 1;
const log = { debug(text) { if (level > 2) process.stdout.write(text); } };
const util = require('util');
const good = process.argv[3] === 'twin';
function describe(state) { return util.inspect(state, { depth: 4 }); }
function step(state, i) {
  state.total += i;
  state.items[i % 20].count++;
  for (const item of state.items) state.sum = (state.sum * 31 + item.count) % 1000003;
  if (!good || level > 2) log.debug('state is now ' + describe(state));
}
const state = { total: 0, sum: 0, items: Array.from({ length: 20 }, (_, i) => ({ id: i, count: 0, tags: ['a', 'b'], at: { x: i, y: i } })) };
let n = 0;
for (const end = Date.now() + 1000 * Number(process.argv[2]); n % 1024 || Date.now() < end; n++) step(state, n);
console.log(n, 'events');
