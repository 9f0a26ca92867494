// Each request asks for a collection.
import java.util.*;
public class SystemGc {
  static int[][] kept = new int[2000][];
  static int handle(int i) { kept[i % 2000] = new int[500]; byte[] b = new byte[20000]; for (int k = 0; k < b.length; k++) b[k] = (byte) (k * i); if (i % 50 == 0) System.gc(); return b[i % 20000]; }
  public static void main(String[] a) { long end = System.nanoTime() + (long) (Double.parseDouble(a[0]) * 1e9); long s = 0; for (int i = 0; System.nanoTime() < end; i++) s += handle(i); System.out.println(s); }
}
