public class FalseJava {
  static class Stats { volatile long reads, writes; }
  static final Stats stats = new Stats();
  static void readLoop(long end) { while (System.nanoTime() < end) for (int i = 0; i < 100000; i++) stats.reads++; }
  static void writeLoop(long end) { while (System.nanoTime() < end) for (int i = 0; i < 100000; i++) stats.writes++; }
  public static void main(String[] a) throws Exception { long end = System.nanoTime() + (long) (Double.parseDouble(a[0]) * 1e9);
    Thread x = new Thread(() -> readLoop(end), "reader"), y = new Thread(() -> writeLoop(end), "writer"); x.start(); y.start(); x.join(); y.join(); System.out.println(stats.reads); }
}
