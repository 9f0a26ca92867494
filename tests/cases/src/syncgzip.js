// A server compresses each answer with gzipSync, on the event loop.
const zlib = require('zlib'), http = require('http');
const data = Buffer.from(Array.from({ length: 20000 }, (_, i) => 'line ' + i * 7919 % 1000).join('\n'));
const end = Date.now() + 1000 * Number(process.argv[2]);
const server = http.createServer((request, reply) => reply.end(zlib.gzipSync(data))).listen(0, () => {
  let live = 8;
  const get = () => http.get({ port: server.address().port, agent: false }, reply => {
    reply.resume();
    reply.on('end', () => Date.now() < end ? get() : --live || server.close());
  });
  for (let i = 0; i < 8; i++) get();
});
