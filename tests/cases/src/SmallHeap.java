// A heap that is nearly full: the collector runs all the time.
import java.util.*;
public class SmallHeap {
  static byte[][] keep = new byte[1600][];
  static void handle(int n) { for (int i = 0; i < 100; i++) keep[(n * 100 + i) % keep.length] = new byte[30000]; }
  public static void main(String[] a) throws Exception { long end = System.nanoTime() + (long) (Double.parseDouble(a[0]) * 1e9); Thread[] t = new Thread[2];
    for (int i = 0; i < 2; i++) { int k = i; (t[i] = new Thread(() -> { for (int n = k; System.nanoTime() < end; n++) handle(n); }, "handler-" + i)).start(); } for (Thread x : t) x.join(); }
}
