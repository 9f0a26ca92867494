# Each request to a service makes its own client, and the client its TLS context.
import ssl
import sys
import time

seconds = float(sys.argv[1])


class Client:
    def __init__(self):
        self.context = ssl.create_default_context(cafile="/etc/ssl/certs/ca-certificates.crt")

    def hello(self):
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        session = self.context.wrap_bio(incoming, outgoing, server_hostname="stock.example")
        try:
            session.do_handshake()
        except ssl.SSLWantReadError:
            pass
        return len(outgoing.read())


def request():
    return Client().hello()


end = time.monotonic() + seconds
done = 0
while time.monotonic() < end:
    request()
    done += 1
print(f"{done / seconds:.0f} requests/s")
