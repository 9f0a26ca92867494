// Each name that is parsed is interned: the virtual machine has one table for all strings.
public class Intern {
  static int parseName(int i) { return ("customer-" + i % 200_000).intern().length(); }
  public static void main(String[] a) throws Exception {
    long end = System.nanoTime() + (long) (Double.parseDouble(a[0]) * 1e9); Thread[] t = new Thread[4];
    for (int k = 0; k < 4; k++) { int at = k; (t[k] = new Thread(() -> { for (int i = at; System.nanoTime() < end; i++) parseName(i); }, "parser-" + k)).start(); }
    for (Thread x : t) x.join();
  }
}
