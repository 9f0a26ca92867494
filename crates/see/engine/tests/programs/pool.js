// Eight tasks for the four threads of libuv's pool, then a second without any. Writes how many there were.
const crypto = require('crypto');
let done = 0;
for (let i = 0; i < 8; i++)
  crypto.pbkdf2('secret', 'salt', 50000, 64, 'sha512', () => {
    if (++done === 8)
      setTimeout(() => require('fs').writeFileSync(process.argv[2], `${done}\n`), 1000);
  });
