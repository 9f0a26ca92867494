// A ThreadPoolExecutor of one to eight threads with an unbounded queue has one.
import java.util.concurrent.*;
import java.util.concurrent.atomic.*;
public class OneOfEight {
  static volatile long sink;
  static long resize(int seed) { long x = seed; for (int i = 0; i < 400_000; i++) { x ^= x << 13; x ^= x >>> 7; x ^= x << 17; x += i; } return x; }
  public static void main(String[] a) throws Exception {
    int secs = Integer.parseInt(a[0]); boolean good = a.length > 1 && a[1].equals("good");
    ThreadPoolExecutor pool = new ThreadPoolExecutor(good ? 8 : 1, 8, 30, TimeUnit.SECONDS, new LinkedBlockingQueue<>());
    AtomicLong done = new AtomicLong(); long end = System.nanoTime() + secs * 1_000_000_000L;
    Semaphore open = new Semaphore(64);
    int n = 0;
    while (System.nanoTime() < end) {
      open.acquire();
      final int seed = ++n;
      pool.execute(() -> { sink = resize(seed); done.incrementAndGet(); open.release(); });
    }
    System.out.println(done.get() / secs + " images/s");
    pool.shutdownNow();
  }
}
