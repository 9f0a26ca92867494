// Rolling hash (Rabin and Karp) modulo a prime of 61 bits with BigInt: each step allocates numbers of any length. `twin`: two hashes modulo
// primes of 26 bits with numbers.
const secs = parseFloat(process.argv[2]), twin = process.argv[3] === 'twin';
const P = (1n << 61n) - 1n, B = 911382323n, P1 = 67108859, P2 = 67108837, B1 = 13331063, B2 = 9113823;
function fingerprint(text) {
  let h = 7n;
  for (let i = 0; i < text.length; i++) h = (h * B + BigInt(text.charCodeAt(i))) % P;
  return Number(h & 0xffffn);
}
function fingerprintNumbers(text) {
  let a = 7, b = 11;
  for (let i = 0; i < text.length; i++) { const c = text.charCodeAt(i); a = (a * B1 + c) % P1; b = (b * B2 + c) % P2; }
  return a ^ b;
}
const texts = Array.from({ length: 500 }, (_, i) => `/customers/${i}/orders/${i * 7919}/items?page=${i % 13}&size=50`);
const end = Date.now() + secs * 1000, f = twin ? fingerprintNumbers : fingerprint;
let n = 0, sum = 0;
while (Date.now() < end) { for (const t of texts) sum += f(t) & 15; n += texts.length; }
console.log(`${(n / secs).toFixed(0)} fingerprints/s ${sum & 1}`);
