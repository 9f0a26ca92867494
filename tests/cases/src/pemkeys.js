// Each token is signed with the key's PEM text.
const crypto = require('crypto');
const [secs, mode] = [Number(process.argv[2]), process.argv[3]];
const { privateKey } = crypto.generateKeyPairSync('ec', { namedCurve: 'P-256' });
const pem = privateKey.export({ type: 'pkcs8', format: 'pem' });
const key = mode === 'twin' ? crypto.createPrivateKey(pem) : pem;
function signToken(claims) {
  const body = Buffer.from(JSON.stringify(claims)).toString('base64url');
  const sign = crypto.createSign('SHA256');
  sign.update(body);
  return body + '.' + sign.sign(key, 'base64url');
}
function handle(i) { return signToken({ sub: 'user' + i, iat: i, scope: 'read write' }).length; }
let n = 0;
for (const end = Date.now() + 1000 * secs; Date.now() < end; n++) handle(n);
console.log(n, 'tokens');
