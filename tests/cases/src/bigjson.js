// A server parses a large document for each request, on its one event loop.
const http = require('http');
const doc = JSON.stringify(Array.from({ length: 60000 }, (_, i) => ({ id: i, name: 'item ' + i, tags: ['a', 'b'] })));
function loadCatalogue() { return JSON.parse(doc).length; }
const server = http.createServer((q, r) => r.end('' + loadCatalogue()));
const end = Date.now() + 1000 * process.argv[2];
server.listen(0, () => {
  const port = server.address().port;
  const ask = () => { if (Date.now() > end) { server.close(); server.closeAllConnections && server.closeAllConnections(); return; } http.get({ port }, r => { r.resume(); r.on('end', ask); }); };
  for (let i = 0; i < 4; i++) ask();
});
