// Eight threads print by System.out, which has one lock and flushes each line.
public class Printer {
  static void report(int i) { System.out.println("done " + i); }
  public static void main(String[] a) throws Exception {
    long end = System.nanoTime() + (long) (Double.parseDouble(a[0]) * 1e9); Thread[] t = new Thread[8];
    for (int k = 0; k < 8; k++) (t[k] = new Thread(() -> { for (int i = 0; System.nanoTime() < end; i++) report(i); }, "job-" + k)).start();
    for (Thread x : t) x.join();
  }
}
