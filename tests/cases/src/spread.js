function index(rows) { return rows.reduce((acc, r) => ({ ...acc, [r.id]: r }), {}); }
const rows = Array.from({ length: 1500 }, (_, i) => ({ id: 'k' + i }));
const end = Date.now() + 1000 * process.argv[2];
let n = 0; while (Date.now() < end) n += Object.keys(index(rows)).length;
console.log(n);
