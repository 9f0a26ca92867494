import java.util.concurrent.*;
import java.util.concurrent.atomic.*;
/** Tasks of a pool of 8 hand parts of their work to the same pool and wait for them, up to 50 ms, then do them alone; `twin`: a pool of its own for the parts. */
public class NestedTasks {
    static ExecutorService pool, parts;
    static final AtomicLong done = new AtomicLong(), alone = new AtomicLong();
    static int price(int seed) { int h = seed; for (int i = 0; i < 20000; i++) h = h * 31 + (h >>> 7); return h; }
    static int quote(int request) throws Exception {
        Future<Integer> part = parts.submit(() -> price(request));
        int mine = price(request + 1);
        try { return mine + part.get(50, TimeUnit.MILLISECONDS); }
        catch (TimeoutException late) { part.cancel(false); alone.incrementAndGet(); return mine + price(request); }
    }
    public static void main(String[] args) throws Exception {
        double seconds = Double.parseDouble(args[0]);
        pool = Executors.newFixedThreadPool(8);
        parts = args.length > 1 ? Executors.newFixedThreadPool(8) : pool;
        Semaphore open = new Semaphore(64);
        long start = System.nanoTime(), end = start + (long) (seconds * 1e9);
        for (int i = 0; System.nanoTime() < end; i++) {
            int request = i;
            open.acquire();
            pool.submit(() -> { try { quote(request); done.incrementAndGet(); } catch (Exception e) { } finally { open.release(); } });
        }
        System.out.printf("timed out %d%n%.0f quotes/s%n", alone.get(), done.get() * 1e9 / (System.nanoTime() - start));
        System.exit(0);
    }
}
