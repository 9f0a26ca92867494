// A password hash on the event loop: requests wait for it.
const { pbkdf2Sync } = require('crypto'); const http = require('http'); const end = Date.now() + process.argv[2] * 1000;
function login() { return pbkdf2Sync('secret', 'salt', 60000, 64, 'sha512'); }
const server = http.createServer((q, r) => { if (q.url == '/login') login(); r.end('ok'); }).listen(0, '127.0.0.1', () => {
  const port = server.address().port, agent = new http.Agent({ keepAlive: true });
  const ask = (url) => Date.now() < end ? http.get({ port, host: '127.0.0.1', path: url, agent }, (r) => { r.resume(); r.on('end', () => ask(url)); }) : setTimeout(() => process.exit(0), 50);
  ask('/login'); ask('/login'); ask('/status');
});
