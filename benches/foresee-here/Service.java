// Service SECONDS CLIENTS: an HTTP server on loopback with a pool of threads, which sorts and hashes for each request, and
// its clients in the same process. Tells requests a second, of the last three quarters of the time: the first is the
// compiler's.
import com.sun.net.httpserver.HttpServer;
import java.io.InputStream;
import java.net.HttpURLConnection;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.URL;
import java.security.MessageDigest;
import java.util.Arrays;
import java.util.Random;
import java.util.concurrent.Executors;
import java.util.concurrent.atomic.AtomicLong;

public class Service {
    public static void main(String[] args) throws Exception {
        double seconds = Double.parseDouble(args[0]);
        int clients = Integer.parseInt(args[1]);
        HttpServer server = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 128);
        server.createContext("/", exchange -> {
            try {
                int[] numbers = new Random(1).ints(4000).toArray();
                Arrays.sort(numbers);
                byte[] bytes = new byte[numbers.length];
                for (int i = 0; i < numbers.length; i++) bytes[i] = (byte) numbers[i];
                byte[] sum = MessageDigest.getInstance("SHA-256").digest(bytes);
                exchange.sendResponseHeaders(200, sum.length);
                exchange.getResponseBody().write(sum);
                exchange.close();
            } catch (java.security.NoSuchAlgorithmException e) {
                throw new IllegalStateException(e);
            }
        });
        server.setExecutor(Executors.newFixedThreadPool(clients));
        server.start();
        URL url = new URL("http://127.0.0.1:" + server.getAddress().getPort() + "/");
        AtomicLong done = new AtomicLong();
        long begin = System.nanoTime();
        long from = begin + (long) (seconds * 0.25e9), end = begin + (long) (seconds * 1e9);
        Thread[] all = new Thread[clients];
        for (int i = 0; i < clients; i++) {
            all[i] = new Thread(() -> {
                try {
                    while (System.nanoTime() < end) {
                        HttpURLConnection connection = (HttpURLConnection) url.openConnection();
                        try (InputStream in = connection.getInputStream()) { in.readAllBytes(); }
                        if (System.nanoTime() > from) done.incrementAndGet();
                    }
                } catch (java.io.IOException e) {
                    throw new IllegalStateException(e);
                }
            });
            all[i].start();
        }
        for (Thread t : all) t.join();
        System.out.printf("%.1f requests/s%n", done.get() / ((System.nanoTime() - from) / 1e9));
        System.exit(0);
    }
}
