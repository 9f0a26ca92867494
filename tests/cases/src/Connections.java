// Sixteen threads share two connections to a server that answers after 10 ms.
import java.io.*;
import java.net.*;
import java.util.concurrent.*;
public class Connections {
  static void serve(Socket s) { try (s) { s.setTcpNoDelay(true); for (int c; (c = s.getInputStream().read()) >= 0;) { Thread.sleep(10); s.getOutputStream().write(c); } } catch (Exception e) { } }
  public static void main(String[] a) throws Exception {
    ServerSocket l = new ServerSocket(0, 64, InetAddress.getByName("127.0.0.1"));
    Thread accept = new Thread(() -> { try { while (true) { Socket s = l.accept(); new Thread(() -> serve(s), "serve").start(); } } catch (Exception e) { } }); accept.setDaemon(true); accept.start();
    BlockingQueue<Socket> pool = new ArrayBlockingQueue<>(2); long end = System.nanoTime() + (long) (Double.parseDouble(a[0]) * 1e9);
    for (int i = 0; i < 2; i++) { Socket s = new Socket("127.0.0.1", l.getLocalPort()); s.setTcpNoDelay(true); pool.put(s); }
    Thread[] t = new Thread[16];
    for (int i = 0; i < 16; i++) (t[i] = new Thread(() -> { try { while (System.nanoTime() < end) { Socket s = pool.take(); s.getOutputStream().write(7); s.getInputStream().read(); pool.put(s); } } catch (Exception e) { } }, "worker-" + i)).start();
    for (Thread x : t) x.join(); System.exit(0);
  }
}
