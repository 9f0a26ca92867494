// Control flow by exceptions: each fills in its stack trace.
public class Traces {
  static int parse(String s) { try { return Integer.parseInt(s); } catch (NumberFormatException e) { return -1; } }
  static int deep(int n, String s) { return n == 0 ? parse(s) : deep(n - 1, s) + 1; }
  public static void main(String[] a) throws Exception {
    long end = System.nanoTime() + (long) (Double.parseDouble(a[0]) * 1e9); Thread[] t = new Thread[2];
    for (int i = 0; i < 2; i++) (t[i] = new Thread(() -> { int x = 0; while (System.nanoTime() < end) x += deep(40, "n/a"); if (x == 7) System.out.println(x); })).start();
    for (Thread x : t) x.join();
  }
}
