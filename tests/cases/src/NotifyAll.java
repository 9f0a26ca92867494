// notifyAll wakes all 24 consumers for one item.
import java.util.*;
public class NotifyAll {
  static final ArrayDeque<Integer> items = new ArrayDeque<>(); static final Object ready = new Object(); static boolean done;
  static Integer take() throws InterruptedException { synchronized (ready) { while (items.isEmpty()) { if (done) return null; ready.wait(); } return items.poll(); } }
  static void put(int i) { synchronized (ready) { items.add(i); ready.notifyAll(); } }
  public static void main(String[] a) throws Exception {
    long end = System.nanoTime() + (long) (Double.parseDouble(a[0]) * 1e9); Thread[] t = new Thread[24];
    for (int i = 0; i < 24; i++) (t[i] = new Thread(() -> { try { while (take() != null); } catch (InterruptedException e) { } }, "consumer-" + i)).start();
    for (int i = 0; System.nanoTime() < end; i++) { put(i); java.util.concurrent.locks.LockSupport.parkNanos(50_000); }
    synchronized (ready) { done = true; ready.notifyAll(); } for (Thread x : t) x.join();
  }
}
