// Each rule of a user runs in a context of its own, made for it (vm.runInNewContext). Twin: one context for all.
const vm = require('vm');
const end = Date.now() + 1000 * Number(process.argv[2]), twin = process.argv[3];
const rule = new vm.Script('total > 100 && items.length < 8 ? total * 0.9 : total');
const one = vm.createContext({ total: 0, items: [] });
function price(order) {
  if (twin) { one.total = order.total; one.items = order.items; return rule.runInContext(one); }
  return rule.runInNewContext({ total: order.total, items: order.items });
}
let n = 0, sum = 0;
while (Date.now() < end) { sum += price({ total: n % 200, items: [1, 2, 3] }); n++; }
console.log((n / Number(process.argv[2])).toFixed(0));
