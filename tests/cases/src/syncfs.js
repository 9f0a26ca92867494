// Requests read a template from disk by a synchronous call, on the event loop.
const fs = require('fs'), http = require('http'), path = require('path'), os = require('os');
const file = path.join(os.tmpdir(), 'syncfs-case'); fs.writeFileSync(file, 'x'.repeat(200)); const end = Date.now() + process.argv[2] * 1000;
function render() { let n = 0; for (let i = 0; i < 200; i++) n += fs.readFileSync(file).length; return n; }
const server = http.createServer((q, r) => r.end(String(render()))).listen(0, '127.0.0.1', () => { const agent = new http.Agent({ keepAlive: true });
  const ask = () => Date.now() < end ? http.get({ port: server.address().port, host: '127.0.0.1', agent }, r => { r.resume(); r.on('end', ask); }) : process.exit(0); for (let i = 0; i < 4; i++) ask(); });
