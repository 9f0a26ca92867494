# A service checks the API key of each request against its stored PBKDF2 hash.
import hashlib, os, sys, time
good = sys.argv[2:] == ['twin']
salt = os.urandom(16)
KEYS = {'svc%d' % i: hashlib.pbkdf2_hmac('sha256', b'secret%d' % i, salt, 20000) for i in range(20)}
seen = {}

def authenticate(user, secret):
    if good:
        quick = hashlib.sha256(salt + secret).digest()
        if seen.get(user) == quick:
            return True
    ok = hashlib.pbkdf2_hmac('sha256', secret, salt, 20000) == KEYS[user]
    if ok and good:
        seen[user] = quick
    return ok

def handle(i):
    user = 'svc%d' % (i % 20)
    if not authenticate(user, b'secret%d' % (i % 20)):
        raise PermissionError(user)
    return sum(j * j for j in range(400))

end, n = time.monotonic() + float(sys.argv[1]), 0
while time.monotonic() < end:
    handle(n)
    n += 1
print(n, 'requests')
