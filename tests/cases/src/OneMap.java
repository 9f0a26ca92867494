// Eight threads count in one synchronized map.
import java.util.*;
public class OneMap {
  static final Map<String, Integer> counts = new HashMap<>(); static volatile long sink;
  static void count(String key) { synchronized (counts) { counts.merge(key, 1, Integer::sum); for (Integer v : counts.values()) sink += v; } }
  public static void main(String[] a) throws Exception {
    long end = System.nanoTime() + (long) (Double.parseDouble(a[0]) * 1e9); Thread[] t = new Thread[8];
    for (int i = 0; i < 8; i++) { int k = i; (t[i] = new Thread(() -> { Random r = new Random(k); while (System.nanoTime() < end) count("page-" + r.nextInt(300)); }, "worker-" + i)).start(); }
    for (Thread x : t) x.join();
  }
}
