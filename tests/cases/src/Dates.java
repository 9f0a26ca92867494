// One SimpleDateFormat for all threads, under a synchronized method.
import java.text.*;
import java.util.*;
public class Dates {
  static final SimpleDateFormat format = new SimpleDateFormat("yyyy-MM-dd HH:mm:ss");
  static synchronized String stamp(long t) { return format.format(new Date(t)); }
  public static void main(String[] a) throws Exception {
    long end = System.nanoTime() + (long) (Double.parseDouble(a[0]) * 1e9); Thread[] t = new Thread[6];
    for (int k = 0; k < 6; k++) (t[k] = new Thread(() -> { long i = 0; while (System.nanoTime() < end) stamp(i += 1000); }, "logger-" + k)).start();
    for (Thread x : t) x.join();
  }
}
