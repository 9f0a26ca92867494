import java.util.*;
public class LinkedGet {
  static long total(List<Integer> list) { long s = 0; for (int i = 0; i < list.size(); i++) s += list.get(i); return s; }
  public static void main(String[] a) { List<Integer> l = new LinkedList<>(); Random r = new Random(1); for (int i = 0; i < 30000; i++) l.add(r.nextInt());
    long end = System.nanoTime() + (long) (Double.parseDouble(a[0]) * 1e9), s = 0; while (System.nanoTime() < end) s += total(l); System.out.println(s); }
}
