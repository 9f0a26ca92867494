// Rows are rendered to markup. `twin` starts itself without NODE_OPTIONS.
const { spawnSync } = require('child_process');
if (process.argv[3] === 'twin' && process.env.NODE_OPTIONS) {
  const env = { ...process.env }; delete env.NODE_OPTIONS;
  process.exit(spawnSync(process.execPath, process.argv.slice(1), { env, stdio: 'inherit' }).status);
}
function escape(s) {
  let out = '';
  for (let i = 0; i < s.length; i++) {
    const c = s.charCodeAt(i);
    if (c === 60) out += '&lt;'; else if (c === 38) out += '&amp;'; else out += s[i];
  }
  return out;
}
function row(r) { return '<tr><td>' + r.id + '</td><td>' + escape(r.name) + '</td><td>' + (r.price * 1.19).toFixed(2) + '</td></tr>'; }
function page(rows) { let html = ''; for (const r of rows) html += row(r); return html.length; }
const rows = Array.from({ length: 500 }, (_, i) => ({ id: i, name: 'item <' + i + '> & co', price: i * 3 }));
let n = 0;
for (const end = Date.now() + 1000 * Number(process.argv[2]); Date.now() < end; n++) page(rows);
console.log(n, 'pages');
