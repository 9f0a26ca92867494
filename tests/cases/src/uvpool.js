// Eight hashes in flight, one thread in libuv's pool (UV_THREADPOOL_SIZE).
const { pbkdf2 } = require('crypto'); const end = Date.now() + process.argv[2] * 1000;
const next = () => Date.now() < end && pbkdf2('secret', 'salt', 40000, 64, 'sha512', next);
for (let i = 0; i < 8; i++) next();
