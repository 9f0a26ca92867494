// Arrays of half a region and more: G1 gives each regions of its own and collects for them.
public class Humongous {
  static volatile byte[] last; static final byte[][] kept = new byte[24][];
  static void export(int i) { byte[] b = new byte[900_000]; b[i % b.length] = 1; last = b; kept[i % 24] = b; }
  public static void main(String[] a) {
    long end = System.nanoTime() + (long) (Double.parseDouble(a[0]) * 1e9); Object[] live = new Object[400_000]; for (int i = 0; i < live.length; i++) live[i] = new int[]{i};
    for (int i = 0; System.nanoTime() < end; i++) export(i);
    System.out.println(live.length);
  }
}
