const end = Date.now() + 1000 * Number(process.argv[2]); const a = new Float64Array(20000); let s = 0;
function relax(a) { for (let i = 1; i < a.length - 1; i++) a[i] = (a[i - 1] + a[i + 1] + 1) * 0.49; return a[77]; }
while (Date.now() < end) s += relax(a); console.log(s);
