// Java at work after its warm-up, few objects.
public class Compute {
  static long mix(long x) { for (int i = 0; i < 100000; i++) x = x * 6364136223846793005L + i; return x; }
  public static void main(String[] a) throws Exception { long end = System.nanoTime() + (long) (Double.parseDouble(a[0]) * 1e9); Thread[] t = new Thread[2];
    for (int i = 0; i < 2; i++) (t[i] = new Thread(() -> { long x = 1; while (System.nanoTime() < end) x = mix(x); if (x == 0) System.out.println(x); })).start(); for (Thread x : t) x.join(); }
}
