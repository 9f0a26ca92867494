// The JDK's HttpServer without an executor answers 16 clients in one thread, which asks a store for each: 2 ms. `twin`: 16 threads.
import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.BufferedInputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Executors;
import java.util.concurrent.atomic.LongAdder;

public class OneServer {
    static byte[] askStore() throws IOException {
        try {
            Thread.sleep(2);
        } catch (InterruptedException e) {
            throw new IOException(e);
        }
        return "price 42\n".getBytes();
    }

    static void answer(HttpExchange exchange) throws IOException {
        byte[] body = askStore();
        exchange.sendResponseHeaders(200, body.length);
        exchange.getResponseBody().write(body);
        exchange.close();
    }

    static String line(InputStream in) throws IOException {
        StringBuilder line = new StringBuilder();
        for (int c; (c = in.read()) != '\n'; ) {
            if (c < 0) throw new EOFException();
            if (c != '\r') line.append((char) c);
        }
        return line.toString();
    }

    static void customer(int port, long end, LongAdder done) {
        byte[] ask = "GET /price HTTP/1.1\r\nHost: shop\r\n\r\n".getBytes();
        try (Socket socket = new Socket("127.0.0.1", port)) {
            socket.setTcpNoDelay(true);
            InputStream in = new BufferedInputStream(socket.getInputStream());
            while (System.nanoTime() < end) {
                socket.getOutputStream().write(ask);
                int length = 0;
                for (String line; !(line = line(in)).isEmpty(); )
                    if (line.toLowerCase().startsWith("content-length:")) length = Integer.parseInt(line.substring(15).trim());
                in.readNBytes(length);
                done.increment();
            }
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    public static void main(String[] args) throws Exception {
        System.setProperty("sun.net.httpserver.nodelay", "true");
        HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", 0), 64);
        server.createContext("/price", OneServer::answer);
        if (args.length > 1) server.setExecutor(Executors.newFixedThreadPool(16));
        server.start();
        LongAdder done = new LongAdder();
        long end = System.nanoTime() + (long) (Double.parseDouble(args[0]) * 1e9);
        List<Thread> customers = new ArrayList<>();
        for (int i = 0; i < 16; i++) {
            Thread customer = new Thread(() -> customer(server.getAddress().getPort(), end, done), "customer-" + i);
            customer.start();
            customers.add(customer);
        }
        for (Thread customer : customers) customer.join();
        System.out.println(done.sum());
        System.exit(0);
    }
}
