// A regular expression with a repetition within a repetition checks each name.
public class Matches {
  static boolean isName(String s) { return s.matches("(\\w+\\s?)*"); }
  public static void main(String[] a) {
    long end = System.nanoTime() + (long) (Double.parseDouble(a[0]) * 1e9), n = 0;
    while (System.nanoTime() < end) if (isName("aaaa aaaa aaaa aa!")) n++;
    System.out.println(n);
  }
}
