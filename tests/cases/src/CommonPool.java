// Parallel streams that wait for answers share the common pool, which has one thread for each CPU but one.
import java.util.concurrent.*;
import java.util.stream.*;
public class CommonPool {
  static int fetch(int i) { try { Thread.sleep(15); } catch (InterruptedException e) { } return i; }
  public static void main(String[] a) throws Exception {
    long end = System.nanoTime() + (long) (Double.parseDouble(a[0]) * 1e9); Thread[] t = new Thread[6];
    for (int i = 0; i < 6; i++) (t[i] = new Thread(() -> { while (System.nanoTime() < end) CompletableFuture.supplyAsync(() -> fetch(1)).join(); }, "request-" + i)).start();
    for (Thread x : t) x.join();
  }
}
