// Awaits a function for each element, though the value is there. Twin "fixed": it does not.
const end = Date.now() + Number(process.argv[2]) * 1000, fixed = process.argv.length > 3;
const cache = new Map();
for (let i = 0; i < 1000; i++) cache.set(i, i * 3);
async function getPrice(id) { return cache.get(id); }
async function totalOf(order) {
  let sum = 0;
  for (const id of order) sum += fixed ? cache.get(id) : await getPrice(id);
  return sum;
}
async function main() {
  const order = [...cache.keys()];
  let n = 0, sum = 0;
  for (; Date.now() < end; n += order.length) sum += await totalOf(order);
  console.log(n, 'prices', sum);
}
main();
