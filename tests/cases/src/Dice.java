// One java.util.Random for all threads: each number is a compare-and-set of one word.
import java.util.*;
public class Dice {
  static final Random random = new Random();
  static int throwDice() { int s = 0; for (int i = 0; i < 50; i++) s += random.nextInt(6); return s; }
  public static void main(String[] a) throws Exception {
    long end = System.nanoTime() + (long) (Double.parseDouble(a[0]) * 1e9); Thread[] t = new Thread[4]; long[] sums = new long[64];
    for (int k = 0; k < 4; k++) { int id = k; (t[k] = new Thread(() -> { while (System.nanoTime() < end) sums[id * 16] += throwDice(); }, "player-" + k)).start(); }
    for (Thread x : t) x.join(); System.out.println(sums[0]);
  }
}
