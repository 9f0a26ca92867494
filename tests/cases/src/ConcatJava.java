public class ConcatJava {
  static String report(int n) { String s = ""; for (int i = 0; i < n; i++) s += "row " + i + ";"; return s; }
  public static void main(String[] a) { long end = System.nanoTime() + (long) (Double.parseDouble(a[0]) * 1e9), s = 0; while (System.nanoTime() < end) s += report(5000).length(); System.out.println(s); }
}
