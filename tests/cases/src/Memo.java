// A map computes a value while it holds the lock of its bin: all threads that want that key, or a neighbour of it, wait.
import java.util.concurrent.*;
public class Memo {
  static final ConcurrentHashMap<Integer, Double> rates = new ConcurrentHashMap<>(16);
  static double load(int k) { double x = k; for (int i = 0; i < 300_000; i++) x = x * 1.0000001 + 1e-9; try { Thread.sleep(3); } catch (InterruptedException e) { } return x; }
  static double rate(int k) { double r = rates.computeIfAbsent(k, Memo::load); rates.remove(k); return r; }
  public static void main(String[] a) throws Exception {
    long end = System.nanoTime() + (long) (Double.parseDouble(a[0]) * 1e9); Thread[] t = new Thread[6];
    for (int i = 0; i < 6; i++) (t[i] = new Thread(() -> { while (System.nanoTime() < end) rate(7); }, "request-" + i)).start();
    for (Thread x : t) x.join();
  }
}
