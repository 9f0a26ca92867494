import java.util.concurrent.atomic.*;
/** A thread sums in a counted loop, which has no safepoint poll with the parallel collector; each collection waits for its end.
 *  `twin`: the same sum in pieces. */
public class LateStops {
    static volatile long sink;
    static final AtomicLong done = new AtomicLong();
    static final int[] rows = new int[16 << 20];
    static int total(int from, int to) {
        int sum = 0;
        for (int i = from; i < to; i++) sum += rows[i] % 7 * (i ^ sum);
        return sum;
    }
    static void report(boolean twin) {
        if (!twin) sink += total(0, rows.length);
        else for (int i = 0; i < rows.length; i += 1 << 14) sink += piece(i, i + (1 << 14));
    }
    static int piece(int from, int to) { return total(from, to); }
    static byte[] order(long id) { byte[] b = new byte[2048]; for (int i = 0; i < 64; i++) b[i] = (byte) (id >> (i & 31)); return b; }
    public static void main(String[] args) throws Exception {
        double seconds = Double.parseDouble(args[0]);
        boolean twin = args.length > 1;
        for (int i = 0; i < rows.length; i++) rows[i] = i * 0x9E3779B9;
        for (int i = 0; i < 20000; i++) piece(0, 1 << 8);
        long start = System.nanoTime(), end = start + (long) (seconds * 1e9);
        Thread reporter = new Thread(() -> { while (System.nanoTime() < end) report(twin); }, "reporter");
        reporter.start();
        long id = 0;
        while (System.nanoTime() < end) { for (int i = 0; i < 1000; i++) sink += order(id++)[7]; done.addAndGet(1000); }
        System.out.printf("%.0f orders/s%n", done.get() * 1e9 / (System.nanoTime() - start));
        System.exit(0);
    }
}
