// Rows of an invoice are formatted for the reader's language.
const good = process.argv[3] === 'twin';
const format = new Intl.NumberFormat('de-DE', { style: 'currency', currency: 'EUR' });
function price(amount) {
  if (good) return format.format(amount);
  return amount.toLocaleString('de-DE', { style: 'currency', currency: 'EUR' });
}
function row(item) { return item.name + ';' + item.count + ';' + price(item.count * item.each); }
const items = Array.from({ length: 200 }, (_, i) => ({ name: 'item' + i, count: i % 7 + 1, each: (i * 37 % 1000) / 8 }));
let n = 0, size = 0;
for (const end = Date.now() + 1000 * Number(process.argv[2]); n % 16 || Date.now() < end; n++) size += row(items[n % 200]).length;
console.log(n, 'rows', size);
